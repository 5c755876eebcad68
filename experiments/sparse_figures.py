"""Figure 1 (decision boundaries on three classes) and figure 2 (basis vectors per class).

    python -m experiments.sparse_figures

Figure 1: 300 training points of three classes in the plane, two Gaussian and one a mixture of
two; SMSVM, ImVM and Sparse-OVA with their smallest basis that reaches the same accuracy on
3,000 test points. The paper does not give its distribution; the spread here was set so that the accuracy is
near its 94.66 %. Figure 2: how the basis vectors of SMSVM and Sparse-OVA at equal test accuracy
are spread over the classes of dna and satimage. "constant" answers the most frequent class.
"""

from __future__ import annotations

from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.preprocessing import StandardScaler

from experiments import _results
from experiments._results import SMALL
from maxmargin import SparseMultiClassSVC, datasets
from maxmargin.baselines import ImportVectorMachine, SparseOneVsRest

GAMMA, C = 0.5, 10.0
MOST = 10 if SMALL else 100


def three_classes(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    y = np.arange(n) % 3
    centres = np.array([[-1.3, 0.8], [1.3, 0.8], [0.0, -1.2], [0.0, 2.6]])
    where = np.where((y == 2) & (rng.random(n) < 0.4), 3, y)
    return centres[where] + rng.normal(scale=0.62, size=(n, 2)), y


def smallest(machine: Any, X: np.ndarray, y: np.ndarray, goal: float) -> Any:
    """The machine with the smallest basis that reaches an accuracy, or with its best one."""
    most = int(machine.basis_sizes_.max()) if isinstance(machine, SparseOneVsRest) else machine.n_basis_
    stages = [machine.truncate(m) for m in range(1, most + 1)]
    scores = [stage.score(X, y) for stage in stages]
    reached = [m for m, score in enumerate(scores) if score >= goal]
    return stages[reached[0] if reached else int(np.argmax(scores))]


def constant(figure: int, name: str, y: np.ndarray, y_test: np.ndarray) -> dict[str, Any]:
    """The row of the most frequent class."""
    classes, counts = np.unique(y, return_counts=True)
    accuracy = 100 * float(np.mean(y_test == classes[counts.argmax()]))
    return {"figure": figure, "data": name, "method": "constant", "class": "all", "vectors": 0,
            "accuracy": accuracy}  # fmt: skip


def boundaries() -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    X, y = three_classes(300, rng)
    X_test, y_test = three_classes(3000, rng)
    shared = {"C": C, "gamma": GAMMA, "random_state": 0}
    machines = {
        "SMSVM": SparseMultiClassSVC(max_basis=60, n_iter_no_change=5, **shared),
        "ImVM": ImportVectorMachine(max_basis=60, rel_tol=0, **shared),
        "Sparse-OVA": SparseOneVsRest(max_basis=40, rel_tol=0, **shared),
    }
    goal = machines["SMSVM"].fit(X, y).score(X_test, y_test)
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.4), sharex=True, sharey=True)
    a, b = np.meshgrid(np.linspace(-4, 4, 300), np.linspace(-4, 5, 300))
    grid = np.column_stack([a.ravel(), b.ravel()])
    rows = [constant(1, "synthetic", y, y_test)]
    for axis, (name, machine) in zip(axes, machines.items(), strict=True):
        small = smallest(machine.fit(X, y), X_test, y_test, goal)
        axis.contourf(a, b, small.predict(grid).reshape(a.shape), levels=[-1, 0.5, 1.5, 3], alpha=0.25)
        for r, mark in enumerate(">D*"):
            axis.plot(*X[y == r].T, mark, ms=3, alpha=0.6, color=f"C{r}")
        axis.plot(*small.basis_vectors_.T, "o", ms=9, mfc="none", mec="black")
        accuracy = 100 * small.score(X_test, y_test)
        axis.set_title(f"{name}: {small.n_basis_} basis vectors, {accuracy:.2f} %")
        rows.append({"figure": 1, "data": "synthetic", "method": name, "class": "all",
                     "vectors": small.n_basis_, "accuracy": accuracy})  # fmt: skip
    figure.tight_layout()
    figure.savefig(_results.RESULTS / "sparse_boundaries.png", dpi=110)
    return rows


def spread(name: str) -> list[dict[str, Any]]:
    train, test = datasets.load(name, split="train"), datasets.load(name, split="test")
    X, T = train.X, test.X
    if name != "dna":
        scaler = StandardScaler().fit(X)
        X, T = scaler.transform(X), scaler.transform(T)
    shared = {"C": 10.0, "gamma": 1.0 / X.shape[1], "random_state": 0}
    joint = SparseMultiClassSVC(max_basis=MOST, n_iter_no_change=5, **shared).fit(X, train.y)
    goal = joint.score(T, test.y)
    apart = SparseOneVsRest(max_basis=MOST, rel_tol=0, **shared).fit(X, train.y)
    rows = [constant(2, name, train.y, test.y)]
    for method, machine in (("SMSVM", joint), ("Sparse-OVA", apart)):
        small = smallest(machine, T, test.y, goal)
        classes, counts = np.unique(train.y[small.basis_indices_], return_counts=True)
        per_class = dict(zip(classes, counts, strict=True))
        rows += [
            {"figure": 2, "data": name, "method": method, "class": r, "vectors": int(per_class.get(r, 0)),
             "accuracy": 100 * small.score(T, test.y)} for r in np.unique(train.y)
        ]  # fmt: skip
    return rows


def bars(rows: list[dict[str, Any]]) -> None:
    names = list(dict.fromkeys(row["data"] for row in rows))
    figure, axes = plt.subplots(1, len(names), figsize=(5.5 * len(names), 4))
    for axis, name in zip(axes, names, strict=True):
        for offset, method in ((-0.2, "SMSVM"), (0.2, "Sparse-OVA")):
            mine = [row for row in rows if row["data"] == name and row["method"] == method]
            axis.bar(np.arange(len(mine)) + offset, [row["vectors"] for row in mine], 0.4, label=method)
        axis.set_xticks(range(len(mine)), [str(row["class"]) for row in mine])
        axis.set_xlabel("class")
        axis.set_ylabel("basis vectors")
        axis.set_title(name)
        axis.legend()
    figure.tight_layout()
    figure.savefig(_results.RESULTS / "sparse_per_class.png", dpi=110)


if __name__ == "__main__":
    _results.command_line(__doc__).parse_args()
    first = boundaries()
    second = [row for name in ("dna", "satimage") for row in spread(name)]
    bars(second)
    _results.write("sparse_figures", [*first, *second], ("figure", "data", "method", "class"))
