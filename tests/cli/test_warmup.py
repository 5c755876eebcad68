"""`maxmargin warmup`."""

import os
import subprocess
import sys

import pytest

from maxmargin._names import ESTIMATORS
from maxmargin.cli import main
from maxmargin.cli.warmup import WARMED

SAID = "compiling loops"


def test_warmup_fits_what_it_is_told(capsys):
    assert main(["warmup", "--jobs", "2", "sparse-multilabel", "sparse-multiclass"]) == 0
    assert "Ready: sparse-multiclass, sparse-multilabel" in capsys.readouterr().out
    assert main(["warmup", "spam"]) == 2


def test_warmup_knows_every_estimator():
    """StreamRanker learns through LabelRanker's loops."""
    assert {estimator for estimator, _ in WARMED.values()} == set(ESTIMATORS) - {"StreamRanker"}


# A fit that compiles unless its loops are on disk, as a table of this size does.
FIT = """
import sys
import numpy as np
from maxmargin.cli import main
X = np.random.default_rng(0).random((900, 25)).round(4)
with open("table.csv", "w") as file:
    print(*(f"x{j}" for j in range(25)), "label", sep=",", file=file)
    for k, row in enumerate(X):
        print(*row, f"l{k % 3}", sep=",", file=file)
words = ["table.csv", "--target", "label", "-m", "sparse-multiclass", "-o", "m.mm"]
sys.exit(main(["fit", *words, *sys.argv[1:]]))
"""


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_a_fit_says_once_that_it_compiles_and_not_after_the_warmup(tmp_path):
    def said(program, *words, cache="cache"):
        done = subprocess.run(
            [sys.executable, *program, *words],
            cwd=tmp_path, env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / cache)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stderr

    fit = ["-c", FIT]
    assert said(fit).count(SAID) == 1
    assert SAID not in said(fit)
    assert SAID not in said(fit, "-q", cache="another")
    assert SAID not in said(["-m", "maxmargin.cli"], "warmup", "sparse-multiclass", cache="third")
    assert SAID not in said(fit, cache="third")
