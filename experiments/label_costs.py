"""Cost of a label: CPU seconds of fits of groups of labels, by number and frequency.

Workers that share labels finish together if their groups cost the same. Quarters of the labels by
frequency, halves and all of them are trained to a certified relative gap of 1e-3. Seconds are fitted by a
constant, a term per label and a term per sample on the rarer side of a label, with relative errors. `RARER`
in `maxmargin.dask.multilabel` is about the ratio of the last two, for as many samples as there are.
Writes ``experiments/results/label_costs.csv``.

    MAXMARGIN_DATA=... python -m experiments.label_costs [rcv1-subsets bibtex generated ...]
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import normalize

import maxmargin
from experiments import _data
from experiments._results import SMALL, chosen, show, write
from experiments._results import load as load_now
from experiments.cluster_rounds import generated, rcv1
from maxmargin.dask.multilabel import Assignment, train
from maxmargin.dask.working_sets import Part
from maxmargin.multilabel.problem import hinge_costs

TOL, REPEATS = 1e-3, 1 if SMALL else 3
SETS = ("rcv1-subsets", "generated", "bibtex", "enron")


def load(name: str) -> tuple[Any, np.ndarray]:
    """Rows of length one, and signs of the labels that have two sides."""
    if name == "rcv1-subsets":
        return rcv1(0)
    if name == "generated":
        return generated(20_000, 64)
    data = _data.load(name)
    X = sp.csr_array(normalize(sp.csr_array(data.X).astype(np.float64)))
    Y = data.Y.toarray() if sp.issparse(data.Y) else np.asarray(data.Y)
    Y = Y[:, (Y.sum(axis=0) > 0) & (Y.sum(axis=0) < len(Y))]
    return X, np.where(Y > 0, 1, -1).astype(np.int8)


def seconds(X: Any, signs: np.ndarray) -> float:
    """CPU seconds of the fastest of some fits, after one that does not count."""
    n, L = signs.shape
    part = Part(X, hinge_costs(np.ascontiguousarray(signs), np.ones((2, L)), np.ones((n, 1))), 1.0)
    wanted = Assignment(slice(0, L), L, None, maxmargin.MultiLabelSVC(tol=TOL, random_state=0), 0)
    train(wanted, part)
    taken = []
    for _ in range(REPEATS):
        start = time.process_time()
        train(wanted, part)
        taken.append(time.process_time() - start)
    return min(taken)


def costs(name: str) -> dict[str, Any]:
    """The line of one data set."""
    X, signs = load(name)
    n, L = signs.shape
    positive = np.count_nonzero(signs > 0, axis=0)
    rarer, order, q = np.minimum(positive, n - positive), np.argsort(-positive), max(L // 4, 1)
    quarters = [order[k * q : (k + 1) * q] for k in range(3)] + [order[3 * q :]]
    halves = [order[: 2 * q], order[2 * q :], order[::2], order[1::2]]
    groups = [*quarters, *halves, order]
    taken = np.array([seconds(X, signs[:, ids]) for ids in groups])
    facts = np.array([(1.0, len(ids), rarer[ids].sum() / n) for ids in groups])
    (fixed, label, side), *_ = np.linalg.lstsq(facts / taken[:, None], np.ones(len(groups)), rcond=None)
    return {
        "set": name,
        "rows": n,
        "labels": L,
        "seconds of all": float(taken[8]),
        "frequent half": float(taken[4]),
        "rare half": float(taken[5]),
        "fixed": float(fixed),
        "per label": float(label),
        "per rarer side": float(side),
        "ratio": float(side / label),
    }


def main() -> None:
    for name in chosen(__doc__, SETS, ("enron",)):
        row = costs(name)
        show(row)
        write("label_costs", [row], ("set",), conditions=load_now())


if __name__ == "__main__":
    main()
