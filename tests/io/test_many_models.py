"""Sound models of every shape that labels, rows and parameters take are saved and come back."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp

import maxmargin
from maxmargin import priors

RNG = np.random.default_rng(4)
X = np.abs(RNG.normal(size=(24, 4)))
Y = (RNG.random((24, 3)) < 0.5).astype(int)
CODES = np.arange(24) % 3
HOLES = np.where(RNG.random((24, 3)) < 0.2, np.nan, Y)
Multi, Classes, Ranker = maxmargin.MultiLabelSVC, maxmargin.MultiClassSVC, maxmargin.LabelRanker
Sparse, Small, Pairs = maxmargin.SparseMultiLabelSVC, maxmargin.SparseMultiClassSVC, maxmargin.SubmodularSVC
GROUPS = list(X.reshape(6, 4, 4))
FRAMES = {
    "pandas": pd.DataFrame(Y, columns=list("xyz")),
    "polars": pl.DataFrame(dict(zip("xyz", Y.T, strict=True))),
}

LABELS = {
    "booleans": Y.astype(bool),
    "bytes": Y.astype(np.uint8),
    "floats": Y.astype(float),
    "signs": 2 * Y - 1,
    "matrix": sp.csr_matrix(Y),
    "pandas": FRAMES["pandas"],
    "polars": FRAMES["polars"],
    "numbered frame": pd.DataFrame(Y),
    "lists": [[["a", "b", "c"][k] for k in range(3) if row[k]] for row in Y],
    "mixed names": [{[1, "b", ("c", 2)][k] for k in range(3) if row[k]} for row in Y],
    "classes": CODES,
    "halves": CODES / 2 * 2.0,
    "words": np.array(["ant", "bee", "cat"])[CODES],
    "objects": np.array(["ant", "bee", "cat"], dtype=object)[CODES],
    "two": CODES % 2,
    "one": np.zeros(24, int),
    "flags": CODES > 0,
}
CASES = {
    **{f"multi, {name}": (Multi(), X, y) for name, y in LABELS.items()},
    **{f"ranker, {name}": (Ranker(), X, y) for name, y in LABELS.items()},
    **{f"sparse, {name}": (Sparse(max_basis=3), X, y) for name, y in LABELS.items() if name != "one"},
    "multi, holes": (Multi(), X, HOLES),
    "multi, constant": (Multi(), X, Y * [1, 0, 1]),
    "multi, smo": (Multi(solver="smo"), X.astype(np.float32), Y),
    "multi, weights": (Multi(class_weight=np.ones((3, 2)), label_margin=[1.0, 2.0, 1.0], n_jobs=-1), X, Y),
    "multi, dict": (Multi(label_weight={0: 2.0}, class_weight={np.int64(1): 2.0}, time_limit=60.0), X, Y),
    "multi, sparse prior": (Multi(prior=sp.csr_array(np.eye(3)), loss="tied"), X, Y),
    "multi, tied": (Multi(prior=priors.identity(3).tolist(), C=np.float32(2), max_iter=np.int64(50)), X, Y),
    "multi, chi2": (Multi(kernel="chi2", gamma=0.5), sp.csr_matrix(X), Y),
    "multi, frame": (Multi(), pd.DataFrame(X, columns=list("abcd")), Y),
    "classes, costs": (Classes(cost_matrix=(1 - np.eye(3)).tolist(), class_weight="balanced"), X, CODES),
    "classes, single": (Classes(kernel="rbf"), X.astype(np.float32), CODES),
    "classes, precomputed": (Classes(kernel="precomputed"), X @ X.T, CODES),
    "classes, one": (Classes(), X, np.zeros(24, int)),
    "classes, bcfw": (Classes(solver="bcfw", max_iter=3), X, CODES % 2),
    "small, bias": (Small(fit_intercept=True, full_bound=True, max_basis=3), X, CODES),
    "small, no path": (Small(keep_path=False, max_basis=3), sp.csr_array(X), CODES),
    "pairs, none": (Pairs(pair_fraction=0.0, tol=0.1), X, Y),
    "pairs, classes": (Pairs(tol=0.1), X, CODES),
    "pairs, constant": (Pairs(tol=0.1, n_jobs=2), X, Y * [1, 0, 1]),
    "chain, arrays": (maxmargin.ChainSVC(max_iter=3), X.reshape(6, 4, 4), CODES.reshape(6, 4)),
    "chain, rows": (maxmargin.ChainSVC(max_iter=3, solver="oeg"), X, CODES),
    "chain, tuples": (maxmargin.ChainSVC(max_iter=3), GROUPS, [tuple("abca")] * 6),
    "latent, given": (maxmargin.LatentSVC(init=np.zeros(6, int), max_iter=3), GROUPS, CODES[::4]),
    "latent, starts": (maxmargin.LatentSVC(n_init=2, max_iter=3, random_state=1), X, CODES),
    "ranker, float32": (Ranker(average=True, max_iter=2), sp.csr_array(X.astype(np.float32)), CODES),
    "ranker, named": (Ranker(n_features=10), pd.DataFrame(X, columns=list("abcd")), CODES),
    "ranker, empty sets": (Ranker(), X, [set()] * 23 + [{"a"}]),
    "ranker, top": (Ranker(n_predicted=2, trace=True, update="fixed"), X, Y),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_sound_model_is_a_sound_file(case, tmp_path):
    model, rows, y = CASES[case]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = model.fit(rows, y)
    maxmargin.save(model, tmp_path / "m.mm")
    back = maxmargin.load(tmp_path / "m.mm")
    said, expected = back.predict(rows), model.predict(rows)
    assert type(said) is type(expected)
    if hasattr(said, "equals"):
        assert said.equals(expected)
    elif sp.issparse(said):
        assert (said != expected).nnz == 0
    else:
        for one, other in zip(said, expected, strict=True):
            assert np.all(one == other)


def test_a_ranker_that_has_met_no_label_is_saved(tmp_path):
    ranker = Ranker().partial_fit(X, [set()] * 24)
    maxmargin.save(ranker, tmp_path / "m.mm")
    assert maxmargin.load(tmp_path / "m.mm").predict(X) == ranker.predict(X)
