"""Every example of the gallery runs and draws."""

import runpy
import warnings
from pathlib import Path

import matplotlib
import pytest
from sklearn.exceptions import ConvergenceWarning

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*/*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs_without_warnings_of_ours(path, tmp_path, monkeypatch):
    matplotlib.use("Agg", force=True)
    import matplotlib.pyplot as plt

    monkeypatch.chdir(tmp_path)
    plt.close("all")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*(?:Stopped after|is constant)")
            warnings.filterwarnings("ignore", category=ConvergenceWarning, module="sklearn")
            runpy.run_path(str(path), run_name="__main__")
        assert plt.get_fignums(), "no picture"
    finally:
        plt.close("all")
