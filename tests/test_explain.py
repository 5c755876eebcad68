"""The parts of a score add up to it, in every estimator with `explain`."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from maxmargin import (
    ChainSVC,
    LabelRanker,
    LatentSVC,
    MultiClassSVC,
    MultiLabelSVC,
    SparseMultiClassSVC,
    SparseMultiLabelSVC,
    SubmodularSVC,
)

RNG = np.random.default_rng(0)
N, D = 60, 5
X = np.abs(RNG.normal(size=(N, D)))
Y = (X[:, :3] + 0.3 * RNG.normal(size=(N, 3)) > 0.7).astype(int)
WORDS = np.array(["ant", "bee", "cat"])[np.argmax(X[:, :3], axis=1)]
SMALL = {"max_basis": 5, "random_state": 0}
CASES = {
    "linear": (MultiLabelSVC(random_state=0), Y),
    "block by block": (MultiLabelSVC(random_state=0, memory_limit=0), Y),
    "rbf": (MultiLabelSVC(kernel="rbf"), Y),
    "two labels": (MultiLabelSVC(), WORDS == "ant"),
    "sparse weights": (MultiLabelSVC(memory_limit=0), Y),
    "sparse weights of two": (MultiLabelSVC(memory_limit=0), WORDS == "ant"),
    "classes": (MultiClassSVC(), WORDS),
    "two": (MultiClassSVC(), np.where(WORDS == "ant", "yes", "no")),
    "rbf classes": (MultiClassSVC(kernel="rbf"), WORDS),
    "rbf two": (MultiClassSVC(kernel="rbf"), WORDS == "ant"),
    "basis": (SparseMultiClassSVC(**SMALL), WORDS),
    "basis two": (SparseMultiClassSVC(**SMALL), WORDS == "ant"),
    "basis learned": (SparseMultiClassSVC(**SMALL, basis="learned"), WORDS),
    "basis labels": (SparseMultiLabelSVC(**SMALL, fit_intercept=True), Y),
    "ranker": (LabelRanker(random_state=0), Y),
    "ranker two": (LabelRanker(random_state=0, weighting="idf"), WORDS == "ant"),
    "submodular": (SubmodularSVC(pair_fraction=0.0, C=0.1), Y),
    "one class": (MultiClassSVC(), np.full(N, "ant")),
}


def fit(name, rows=X):
    model, y = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clone(model).fit(rows, y)


SPARSE = ("linear", "sparse weights", "rbf two", "basis", "ranker")


@pytest.mark.parametrize(
    ("name", "form"),
    [(name, np.asarray) for name in CASES] + [(name, sp.csr_array) for name in SPARSE],
)
def test_parts_add_up_to_the_score(name, form):
    rows = form(X)
    model = fit(name, rows)
    scores = model.decision_function(rows)
    for k, label in enumerate(model.classes_.tolist()):
        own = scores[:, k] if scores.ndim == 2 else (2 * k - 1) * scores
        for top in (2, 100):
            for found, score in zip(model.explain(rows[::3], label=label, top=top), own[::3], strict=True):
                assert found.label == label and len(found.parts) <= top
                assert found.score == pytest.approx(score, rel=1e-7, abs=1e-7)
                total = sum(value for _, value in found.parts) + found.rest + found.bias
                assert total == pytest.approx(found.score, rel=1e-9, abs=1e-9)
                sizes = [abs(value) for _, value in found.parts]
                assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("name", ["classes", "two", "rbf classes", "basis two", "ranker two", "one class"])
def test_without_a_label_the_prediction_is_explained(name):
    model = fit(name)
    assert [found.label for found in model.explain(X)] == model.predict(X).tolist()


def test_parts_are_weights_times_features_and_kernel_values_of_training_rows():
    model = fit("linear")
    found = model.explain(X[:1], label=1)[0]
    by_hand = dict(found.parts)
    for j in range(D):
        assert by_hand[f"x{j}"] == pytest.approx(model.coef_[1, j] * X[0, j])
    model = fit("rbf")
    found = model.explain(X[:1], label=2, top=3)[0]
    for name, value in found.parts:
        i = int(name.removeprefix("row "))
        place = np.flatnonzero(model.support_ == i)[0]
        kernel = np.exp(-model._kernel.gamma * np.sum((X[0] - X[i]) ** 2))
        assert value == pytest.approx(model.dual_coef_[2, place] * kernel)


def test_names():
    frame = pd.DataFrame(X, columns=list("vwxyz"))
    model = MultiLabelSVC().fit(frame, pd.DataFrame(Y, columns=["p", "q", "r"]))
    found = model.explain(frame, label="q", top=5)[0]
    assert {name for name, _ in found.parts} == set("vwxyz") and "q: " in str(found) and "bias" in str(found)
    found = fit("linear").explain(X, label=0, names=[f"word {j}" for j in range(D)])[0]
    assert found.parts[0][0].startswith("word ")


def test_wrong_arguments_are_named():
    model = fit("linear")
    with pytest.raises(ValueError, match="label='cat' is not among the labels"):
        model.explain(X, label="cat")
    with pytest.raises(ValueError, match="top must be a whole number"):
        model.explain(X, top=0)
    with pytest.raises(ValueError, match="names has 2 entries"):
        model.explain(X, names=["a", "b"])


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_positions_of_a_chain_add_up_to_its_score(form):
    """Features and biases of all positions and every step once are the score of the best labeling."""
    words = [form(X[start : start + length]) for start, length in ((0, 4), (4, 1), (5, 3))]
    y = [list(WORDS[start : start + length]) for start, length in ((0, 4), (4, 1), (5, 3))]
    model = ChainSVC(random_state=0).fit(words, y)
    best = model.predict_kbest(words, k=1)
    for found, [(labels, score)] in zip(model.explain(words, top=100), best, strict=True):
        assert [each.label for each in found] == list(labels)
        assert [each.where for each in found] == [f"position {t}" for t in range(len(found))]
        total = 0.0
        for each in found:
            parts = dict(each.parts)
            assert sum(parts.values()) + each.rest + each.bias == pytest.approx(each.score, abs=1e-9)
            assert each.rest == 0
            steps_out = sum(value for name, value in parts.items() if name.startswith("before"))
            total += each.score - steps_out
        assert total == pytest.approx(score, abs=1e-9)
    stacked = model.explain(form(X[:8]), lengths=[4, 1, 3], label="bee", top=1, names=list("abcde"))
    assert len(stacked) == 8 and {each.label for each in stacked} == {"bee"}
    assert all(len(each.parts) == 1 for each in stacked)
    with pytest.raises(ValueError, match="names has 1 entries, but a score has 5 parts"):
        model.explain(words, names=["a"])


@pytest.mark.parametrize("classes", [3, 2])
def test_the_best_candidate_of_a_bag_is_explained(classes):
    bags = list(X.reshape(20, 3, D))
    y = WORDS[::3] if classes == 3 else WORDS[::3] == "ant"
    model = LatentSVC(random_state=0).fit(bags, y)
    for bag, found in zip(bags, model.explain(bags, top=2), strict=True):
        scores = bag @ model.coef_.T + model.intercept_
        k = model.classes_.tolist().index(found.label)
        assert found.score == pytest.approx(scores[:, k].max()) == pytest.approx(scores.max())
        assert found.where == f"candidate {scores[:, k].argmax()}" and found.where in str(found)
        assert sum(value for _, value in found.parts) + found.rest + found.bias == pytest.approx(found.score)
    assert [found.label for found in model.explain(bags)] == model.predict(bags).tolist()
    assert {found.label for found in model.explain(bags, label=model.classes_[0].item())} == {
        model.classes_[0]
    }
