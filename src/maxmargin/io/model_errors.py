"""The one exception for a file that is not a sound model."""

from __future__ import annotations


class ModelFileError(ValueError):
    """A file is not a model that can be loaded, or a model cannot be put into a file."""
