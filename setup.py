"""A wheel with machine code in it is for one Python and one platform; without, for any."""

from pathlib import Path

from setuptools import Distribution, setup


class MaybePlatform(Distribution):
    """The package, with or without prebuilt machine code (see ``tools/wheel.py``)."""

    def has_ext_modules(self) -> bool:
        """Whether the wheel is bound to a platform."""
        return any(Path(__file__).parent.glob("src/maxmargin/_prebuilt/*.loop"))


setup(distclass=MaybePlatform)
