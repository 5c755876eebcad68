"""ONNX models answer as numpy does, label for label."""

import json
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    RobustScaler,
    StandardScaler,
)

import maxmargin
from maxmargin import (
    Calibrated,
    ChainSVC,
    LabelRanker,
    LabelSets,
    LatentSVC,
    MultiClassSVC,
    MultiLabelSVC,
    SparseMultiClassSVC,
    SparseMultiLabelSVC,
    SubmodularSVC,
    TreeLabels,
    to_onnx,
)
from maxmargin.baselines import ThresholdTuner
from maxmargin.edge.labels import LabelSpace

pytest.importorskip("onnx", reason='needs "maxmargin[onnx]"')
runtime = pytest.importorskip("onnxruntime", reason='needs "maxmargin[onnx]"')

RNG = np.random.default_rng(0)
N, D = 90, 4
X = np.abs(RNG.normal(size=(N, D)))
Y = (X @ RNG.normal(size=(D, 3)) + 0.5 * RNG.normal(size=(N, 3)) > 0).astype(int)
WORDS = np.array(["ant", "bee", "cat"])[np.argmax(X[:, :3] + 0.3 * RNG.normal(size=(N, 3)), axis=1)]
TWO = WORDS == "ant"
ONE = (np.arange(N) == 7).astype(int)
RARE = np.where(ONE, "rare", WORDS)
RARE_SETS = [
    {*np.array(list("pqr"))[row > 0], *(["rare"] if one else [])} for row, one in zip(Y, ONE, strict=True)
]
SMALL = {"max_basis": 5, "n_candidates": 5, "random_state": 0}
CASES = {
    "linear": (MultiLabelSVC(), Y),
    "sets": (MultiLabelSVC(), [set(np.array(list("pqr"))[row > 0]) for row in Y]),
    "signs": (MultiLabelSVC(), 2 * Y - 1),
    "frame": (MultiLabelSVC(), pd.DataFrame(Y, columns=["p", "q", "r"])),
    "block by block": (MultiLabelSVC(memory_limit=0), Y),
    "squared hinges": (MultiLabelSVC(loss="squared_hinge"), Y),
    "tied labels": (MultiLabelSVC(prior=np.eye(3) + 0.3), Y),
    "tree": (TreeLabels(MultiLabelSVC(), [(2, 0), (0, 1)]), Y),
    "probable tree": (TreeLabels(Calibrated(MultiLabelSVC(), cv=2), [(2, 0), (2, 1)]), 2 * Y - 1),
    "one against the rest": (MultiLabelSVC(), WORDS),
    "two classes": (MultiLabelSVC(), TWO),
    **{f"multi-label {name}": (MultiLabelSVC(kernel=name), Y) for name in ("rbf", "poly", "sigmoid", "chi2")},
    "constant": (MultiLabelSVC(), np.column_stack([Y, np.ones(N, int), np.zeros(N, int)])),
    "classes": (MultiClassSVC(), WORDS),
    "numbers": (MultiClassSVC(), np.searchsorted(["ant", "bee", "cat"], WORDS) * 10),
    "all the others": (MultiClassSVC(loss="weston_watkins", intercept_scaling=3.0), WORDS),
    "two": (MultiClassSVC(), np.where(TWO, "yes", "no")),
    "one class": (MultiClassSVC(), np.full(N, "ant")),
    "multi-class rbf": (MultiClassSVC(kernel="rbf"), WORDS),
    "sparse classes": (SparseMultiClassSVC(**SMALL), WORDS),
    "sparse two": (SparseMultiClassSVC(**SMALL), TWO),
    "sparse learned": (SparseMultiClassSVC(**SMALL, basis="learned"), WORDS),
    "sparse squares": (SparseMultiClassSVC(**SMALL, loss="crammer_singer"), WORDS),
    "sparse learned labels": (SparseMultiLabelSVC(**SMALL, basis="learned"), Y),
    "sparse labels": (SparseMultiLabelSVC(**SMALL, fit_intercept=True), Y),
    "ranker": (LabelRanker(), Y),
    "ranker top": (LabelRanker(n_predicted=2), Y),
    "ranker classes": (LabelRanker(average=True), WORDS),
    "ranker two": (LabelRanker(), TWO),
    "ranker entropy": (LabelRanker(regulariser="entropy"), Y),
    "ranker idf": (LabelRanker(weighting="idf"), WORDS),
    "ranker root of idf": (LabelRanker(weighting="sqrt-idf"), WORDS),
    "submodular": (SubmodularSVC(pair_fraction=0.0, C=0.1), Y),
    "tuned": (ThresholdTuner(MultiLabelSVC(), cv=3), Y),
    "tuned classes": (ThresholdTuner(MultiClassSVC(), cv=3), WORDS),
    "sigmoids": (Calibrated(MultiLabelSVC(), cv=3), Y),
    "isotonic": (Calibrated(MultiLabelSVC(), cv=3, method="isotonic"), Y),
    "temperature": (Calibrated(MultiClassSVC(), cv=3, method="temperature"), WORDS),
    "temperature of two": (Calibrated(MultiClassSVC(), cv=3, method="temperature"), TWO),
    "sigmoids of classes": (Calibrated(SparseMultiClassSVC(**SMALL), cv=2, method="sigmoid"), WORDS),
    "sigmoids of two": (Calibrated(SparseMultiClassSVC(**SMALL), cv=2), TWO),
    "folds": (Calibrated(MultiLabelSVC(), cv=3, ensemble=True), np.column_stack([Y, ONE, np.zeros(N, int)])),
    "folds of sets": (Calibrated(MultiLabelSVC(), cv=3, ensemble=True, method="isotonic"), RARE_SETS),
    "folds of classes": (Calibrated(MultiClassSVC(), cv=2, ensemble=True, method="temperature"), RARE),
    "folds of two": (Calibrated(SparseMultiClassSVC(**SMALL), cv=2, ensemble=True), TWO),
    "folds of which one has met one class": (Calibrated(MultiClassSVC(), cv=2, ensemble=True), ONE > 0),
    "promised": (LabelSets(MultiLabelSVC(), random_state=0), Y),
    "promised classes": (LabelSets(Calibrated(MultiClassSVC(), cv=2), recall=0.8, random_state=0), WORDS),
    "promised two": (LabelSets(MultiClassSVC(), recall=0.8, random_state=0), TWO),
    **{
        f"scalers {k}": (make_pipeline(*scalers, MultiLabelSVC()), Y)
        for k, scalers in enumerate(
            (
                (StandardScaler(), MinMaxScaler((-1, 2), clip=True), Normalizer()),
                (StandardScaler(with_mean=False), MaxAbsScaler(), Normalizer("l1")),
                (StandardScaler(with_std=False), RobustScaler(), Normalizer("max")),
            )
        )
    },
    "calibrated pipeline": (Calibrated(make_pipeline(StandardScaler(), MultiLabelSVC()), cv=2), Y),
}


def fit(name):
    model, y = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clone(model).fit(X, y), y


def run(proto, rows):
    session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"X": rows}), strict=True))


def as_columns(answer, classes):
    """Sets and frames as 0/1 columns."""
    if isinstance(answer, list):
        return np.array([[name in row for name in classes] for row in answer]).astype(int)
    return np.asarray(answer)


def agrees(model, rows, tolerance=1e-5, near=0.0):
    found = run(to_onnx(model, dtype=rows.dtype), rows)
    expected = as_columns(model.predict(rows), model.classes_)
    labels = found["labels"].astype(expected.dtype)
    assert np.mean(labels != expected) <= near
    if "scores" in found and hasattr(model, "decision_function"):
        np.testing.assert_allclose(
            found["scores"], model.decision_function(rows), rtol=tolerance, atol=tolerance
        )
    assert ("probabilities" in found) == hasattr(model, "predict_proba")
    if "probabilities" in found:
        np.testing.assert_allclose(found["probabilities"], model.predict_proba(rows), atol=tolerance)


def rows_of(n, dtype=np.float64):
    return np.abs(np.random.default_rng(1).normal(size=(n, D))).astype(dtype)


@pytest.mark.parametrize("name", CASES)
def test_answers_of_numpy(name):
    agrees(fit(name)[0], rows_of(300))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_answers_of_numpy_on_many_rows(name):
    agrees(fit(name)[0], rows_of(10**5))


@pytest.mark.parametrize(
    "name", ["linear", "classes", "multi-label rbf", "sigmoids", "folds", "folds of classes"]
)
def test_single_precision_is_near(name):
    agrees(fit(name)[0], rows_of(2000, np.float32), 1e-4, near=2e-3)


def test_precomputed_kernels():
    K = X @ X.T
    for model, y in ((MultiLabelSVC(kernel="precomputed"), Y), (MultiClassSVC(kernel="precomputed"), WORDS)):
        agrees(model.fit(K, y), rows_of(50) @ X.T)


def test_wrappers_that_take_some_columns_of_a_kernel_matrix():
    inner = MultiLabelSVC(kernel="precomputed")
    for model in (
        Calibrated(inner, cv=3, ensemble=True),
        LabelSets(inner, recall=0.7, random_state=0),
        LabelSets(Calibrated(inner, cv=3, ensemble=True), recall=0.7, random_state=0),
    ):
        agrees(model.fit(X @ X.T, Y), rows_of(50) @ X.T)


def session_of(model):
    return runtime.InferenceSession(to_onnx(model).SerializeToString(), providers=["CPUExecutionProvider"])


def chain(**how):
    return ChainSVC(random_state=0, **how).fit(list(X.reshape(30, 3, D)), list(WORDS.reshape(30, 3)))


@pytest.mark.parametrize("how", [{}, {"intercept_scaling": 4.0}], ids=str)
def test_sequences_by_scan(how):
    model = chain(**how)
    session = session_of(model)
    rng = np.random.default_rng(2)
    for length in (1, 2, 5, 40):
        word = rng.normal(size=(length, D))
        assert session.run(["labels"], {"X": word})[0].tolist() == list(model.predict([word])[0])


def bag_machine():
    return LatentSVC(random_state=0).fit(list(X.reshape(30, 3, D)), WORDS[::3])


def check_bags(model, bags):
    session = session_of(model)
    found = [session.run(["labels", "scores"], {"X": bag}) for bag in bags]
    assert np.concatenate([labels for labels, _ in found]).tolist() == model.predict(bags).tolist()
    np.testing.assert_allclose(np.vstack([scores for _, scores in found]), model.decision_function(bags))


def test_bags():
    check_bags(bag_machine(), list(X.reshape(30, 3, D))[:10])


@pytest.mark.slow
def test_many_rows_in_sequences_and_bags():
    rows = np.random.default_rng(3).normal(size=(10**5, D))
    check_bags(bag_machine(), list(rows.reshape(-1, 4, D)))
    for how in ({}, {"intercept_scaling": 4.0}):
        model = chain(**how)
        session = session_of(model)
        words = list(rows.reshape(-1, 50, D))
        found = [session.run(["labels"], {"X": word})[0] for word in words]
        np.testing.assert_array_equal(np.concatenate(found), np.concatenate(model.predict(words)))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sparse_weights_stay_sparse(dtype):
    model, _ = fit("block by block")
    model.coef_ = sp.random_array((300, 400), density=0.02, format="csc", random_state=1)
    model.intercept_ = np.linspace(-1, 1, 300)
    model._space = LabelSpace("indicator", np.arange(300), None, np.dtype(np.int64))
    model.classes_, model.n_features_in_ = model._space.classes, 400
    proto = to_onnx(model, dtype=dtype)
    assert len(proto.SerializeToString()) < 300 * 400 * 2
    rows = np.random.default_rng(2).normal(size=(50, 400)).astype(dtype)
    agrees(model, rows, tolerance=1e-4, near=0.0 if dtype == np.float64 else 1e-3)


def test_weights_beyond_what_a_file_holds_are_refused(monkeypatch):
    model, _ = fit("block by block")
    monkeypatch.setattr("maxmargin.export.graph.LARGEST_FILE", 50)
    for coef in (model.coef_, sp.csc_array(([1.0] * 4, ([0, 1, 2, 2], [0, 1, 2, 3])), shape=(300, 400))):
        model.coef_ = coef
        with pytest.raises(ValueError, match=r"larger than 2 GiB.* larger prune_below"):
            to_onnx(model)


def test_outputs_are_chosen_and_names_are_kept():
    model, _ = fit("frame")
    proto = to_onnx(model, outputs=["scores"])
    assert [output.name for output in proto.graph.output] == ["scores"]
    props = {prop.key: prop.value for prop in proto.metadata_props}
    assert json.loads(props["labels"]) == ["p", "q", "r"]
    with pytest.raises(ValueError, match="has no probabilities; wrap it in"):
        to_onnx(model, outputs=["probabilities"])
    with pytest.raises(ValueError, match="outputs must be names among"):
        to_onnx(model, outputs=["margins"])
    with pytest.raises(ValueError, match="dtype must be"):
        to_onnx(model, dtype=np.int64)


def test_what_cannot_be_exported_is_said():
    with pytest.raises(ValueError, match="pair_fraction=0"):
        to_onnx(SubmodularSVC(C=10.0, pair_fraction=1.0).fit(X, np.repeat(Y[:, :1], 3, axis=1) | Y))
    with pytest.raises(ValueError, match="callable kernel"):
        to_onnx(MultiLabelSVC(kernel=lambda A, B: A @ B.T).fit(X, Y))
    with pytest.raises(TypeError, match="LogisticRegression cannot be exported"):
        to_onnx(LogisticRegression().fit(X, Y[:, 0]))


@pytest.mark.parametrize("wrapped", [False, True])
def test_texts_through_skl2onnx(wrapped):
    pytest.importorskip("skl2onnx", reason='needs "maxmargin[onnx]"')
    texts = ["red ball", "blue ball", "red cube", "blue cube", "green cube", "green ball"] * 5
    y = np.array(["ball" if "ball" in text else "cube" for text in texts])
    model = MultiClassSVC(random_state=0)
    pipe = make_pipeline(TfidfVectorizer(lowercase=False), Calibrated(model, cv=2) if wrapped else model).fit(
        texts, y
    )
    found = run(to_onnx(pipe), np.array(texts, dtype=object)[:, None])
    np.testing.assert_array_equal(found["labels"], pipe.predict(texts))
    if wrapped:
        np.testing.assert_allclose(found["probabilities"], pipe.predict_proba(texts), atol=1e-5)
    else:
        np.testing.assert_allclose(found["scores"], pipe.decision_function(texts), atol=1e-5)


def test_steps_that_skl2onnx_knows():
    skl2onnx = pytest.importorskip("skl2onnx", reason='needs "maxmargin[onnx]"')
    pipe = make_pipeline(StandardScaler(), PCA(3), MultiLabelSVC(random_state=0)).fit(X, Y)
    agrees(pipe, rows_of(100))
    proto = to_onnx(pipe, outputs=["labels"])
    assert [output.name for output in proto.graph.output] == ["labels"]
    # And the other way round, once the converters are registered.
    theirs = skl2onnx.to_onnx(pipe, X, target_opset=17)
    np.testing.assert_array_equal(run(theirs, rows_of(100))["labels"], pipe.predict(rows_of(100)))


def test_without_the_package_one_error_names_it():
    code = (
        "import sys; sys.modules['onnx'] = None; import numpy as np, maxmargin\n"
        "model = maxmargin.MultiLabelSVC().fit(np.eye(4), [[0, 1], [1, 0], [1, 1], [0, 0]])\n"
        "try: maxmargin.to_onnx(model)\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install onnx" in done.stdout
    assert maxmargin.to_onnx is to_onnx
