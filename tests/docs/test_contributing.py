"""The example of CONTRIBUTING.md: a solver is one file and one line."""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.utils._param_validation import InvalidParameterError

import maxmargin
from maxmargin import MultiLabelSVC
from maxmargin._names import ESTIMATORS
from maxmargin.edge.estimator import Choice
from maxmargin.multilabel import estimator as multilabel

TEXT = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
# A program that imports the file with the two blocks and fits.
USE = """
import gradient
import numpy as np
from maxmargin import MultiLabelSVC

rng = np.random.default_rng(0)
X = rng.normal(size=(30, 3))
Y = (X @ rng.normal(size=(3, 2)) + 0.5 * rng.normal(size=(30, 2)) > 0).astype(int)
ours = MultiLabelSVC(solver="gradient", tol=1e-3, max_iter=20_000).fit(X, Y)
best = MultiLabelSVC(tol=1e-6).fit(X, Y)
assert ours.duality_gap_ <= 1e-3
assert abs(ours.primal_objective_ / best.primal_objective_ - 1) <= 2e-3
assert all(record["dual"] <= best.primal_objective_ * (1 + 1e-9) for record in ours.history_)
"""


def test_the_example_works_outside_of_the_package(tmp_path):
    assert len(BLOCKS) == 2
    (tmp_path / "gradient.py").write_text("\n".join(BLOCKS))
    (tmp_path / "use.py").write_text(USE)
    done = subprocess.run(
        [sys.executable, "use.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def with_solvers():
    """Every estimator with a table of solvers, and the table."""
    for name in ESTIMATORS:
        estimator = getattr(maxmargin, name)
        solvers = getattr(sys.modules[estimator.__module__], "SOLVERS", None)
        if solvers is not None:
            yield pytest.param(estimator, solvers, id=name)


@pytest.mark.parametrize(("estimator", "solvers"), list(with_solvers()))
def test_every_estimator_reads_its_table_when_it_fits(estimator, solvers, monkeypatch):
    model = estimator(solver="mine")
    with pytest.raises(InvalidParameterError) as refused:
        model._validate_params()
    assert all(repr(name) in str(refused.value) for name in solvers)
    monkeypatch.setitem(solvers, "mine", Choice(lambda *_, **__: None, "Nothing."))
    model._validate_params()


def test_a_parameter_is_refused_where_a_solver_from_outside_alone_reads_it(monkeypatch):
    @dataclass(eq=False, repr=False)
    class Stepping(MultiLabelSVC):
        step: float = 1.0

        _parameter_constraints = MultiLabelSVC._parameter_constraints

    def build(problem: Any, alpha: np.ndarray, **options: Any) -> Any:
        return multilabel.SOLVERS["dca"].build(problem, alpha, **options)

    monkeypatch.setitem(multilabel.SOLVERS, "mine", Choice(build, "As dca.", reads=("step",)))
    X, Y = np.eye(3), np.array([[1, 0], [0, 1], [1, 1]])
    assert Stepping(solver="mine", step=2.0).fit(X, Y).duality_gap_ <= 1e-3
    with pytest.raises(ValueError, match=r"step=2\.0 is read by solver 'mine' only"):
        Stepping(step=2.0).fit(X, Y)
    assert MultiLabelSVC().fit(X, Y).duality_gap_ <= 1e-3
