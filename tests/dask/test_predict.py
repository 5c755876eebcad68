"""Lazy predictions of any fitted model on Dask collections."""

import dask
import dask.array as da
import numpy as np
import pytest
from sklearn.datasets import make_multilabel_classification

import maxmargin
from maxmargin.dask import decision_function, predict

X, Y = make_multilabel_classification(40, n_features=5, n_classes=3, allow_unlabeled=False, random_state=0)
CLASSES = Y.argmax(axis=1)
MODELS = {
    "labels": (maxmargin.MultiLabelSVC(kernel="rbf"), Y),
    "classes": (maxmargin.MultiClassSVC(), CLASSES),
    "ranker": (maxmargin.LabelRanker(max_iter=5), Y),
    "submodular": (maxmargin.SubmodularSVC(C=0.01, tol=0.1), Y),
    "sparse": (maxmargin.SparseMultiLabelSVC(max_basis=3), Y),
    "sparse classes": (maxmargin.SparseMultiClassSVC(max_basis=3), CLASSES),
    "probabilities": (maxmargin.Calibrated(maxmargin.MultiClassSVC(), cv=2), CLASSES),
}


@pytest.mark.parametrize("name", MODELS)
def test_lazy_predictions_equal_those_of_the_model(name):
    model, y = MODELS[name]
    model.fit(X, y)
    rows = da.from_array(X, (15, 5))
    answers = predict(model, rows)
    assert isinstance(answers, da.Array)
    assert np.array_equal(answers.compute(scheduler="sync"), model.predict(X))
    parts = dask.compute(*predict(model, [dask.delayed(X[:15]), dask.delayed(X[15:])]), scheduler="sync")
    assert np.array_equal(np.concatenate(parts), model.predict(X))
    if hasattr(model, "decision_function"):
        scores = decision_function(model, rows).compute(scheduler="sync")
        np.testing.assert_allclose(scores, model.decision_function(X), rtol=1e-12, atol=1e-12)


def test_partitions_of_sequences():
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(n, 2)) for n in (3, 1, 4, 2)]
    labels = ["".join("ab"[int(x[0] > 0)] for x in one) for one in rows]
    model = maxmargin.ChainSVC().fit(rows, labels)
    parts = dask.compute(*predict(model, [dask.delayed(rows[:3]), dask.delayed(rows[3:])]), scheduler="sync")
    assert [*parts[0], *parts[1]] == model.predict(rows)
