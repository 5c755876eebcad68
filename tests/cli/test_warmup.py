"""`maxmargin warmup`."""

import os
import subprocess
import sys

import numpy as np
import pytest

from maxmargin._names import ESTIMATORS
from maxmargin.cli import main
from maxmargin.cli.reproduce import WARMED


def test_warmup_covers_every_estimator():
    """StreamRanker learns through the loops of LabelRanker."""
    assert {estimator for estimator, _ in WARMED.values()} == set(ESTIMATORS) - {"StreamRanker"}
    assert main(["warmup", "spam"]) == 2


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_a_fit_after_the_warmup_does_not_compile(tmp_path):
    def run(*words):
        done = subprocess.run(
            [sys.executable, "-m", "maxmargin.cli", *words],
            cwd=tmp_path, env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done

    # A table of this size is fitted by compiled loops.
    X = np.random.default_rng(0).random((900, 25)).round(4)
    lines = [f"{','.join(map(str, row))},l{k % 3}" for k, row in enumerate(X)]
    header = ",".join([*(f"x{j}" for j in range(25)), "label"])
    (tmp_path / "table.csv").write_text("\n".join([header, *lines]) + "\n")
    fit = ["fit", "table.csv", "--target", "label", "-m", "sparse-multiclass", "-o", "m.mm"]
    assert "Ready: sparse-multiclass" in run("warmup", "--jobs", "2", "sparse-multiclass").stdout
    assert "compiling loops" not in run(*fit).stderr
