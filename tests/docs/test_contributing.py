"""The worked example of CONTRIBUTING.md: a solver is one file and one line."""

import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.utils._param_validation import StrOptions

from maxmargin.multilabel import estimator

TEXT = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def test_the_example_is_a_solver(monkeypatch):
    monkeypatch.setattr(estimator, "SOLVERS", dict(estimator.SOLVERS))
    names: dict = {}
    for block in BLOCKS:
        exec(compile(block, "CONTRIBUTING.md", "exec"), names)
    MultiLabelSVC = estimator.MultiLabelSVC
    assert "gradient" in estimator.SOLVERS
    # Written into the file, the line would be there before the constraint is read from the table.
    monkeypatch.setitem(MultiLabelSVC._parameter_constraints, "solver", [StrOptions(set(estimator.SOLVERS))])
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    Y = (X @ rng.normal(size=(3, 2)) + 0.5 * rng.normal(size=(30, 2)) > 0).astype(int)
    ours = MultiLabelSVC(solver="gradient", tol=1e-3, max_iter=20_000).fit(X, Y)
    best = MultiLabelSVC(tol=1e-6).fit(X, Y)
    assert ours.duality_gap_ <= 1e-3
    assert ours.primal_objective_ == pytest.approx(best.primal_objective_, rel=2e-3)
    assert all(record["dual"] <= best.primal_objective_ * (1 + 1e-9) for record in ours.history_)
