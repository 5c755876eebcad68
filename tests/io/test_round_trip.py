"""Every estimator comes back bit for bit."""

from __future__ import annotations

import json
import pickle
import warnings

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from safetensors.numpy import load_file
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import maxmargin
from maxmargin import priors
from maxmargin._names import ESTIMATORS
from maxmargin.baselines import ThresholdTuner
from maxmargin.edge.labels import LabelSpace
from maxmargin.io.values import Decoder, Encoder
from maxmargin.persistence import SKOPS_TRUSTED, ModelFileError, describe

RNG = np.random.default_rng(3)
X = RNG.normal(size=(36, 5))
Y = (X @ RNG.normal(size=(5, 3)) > 0.2).astype(int)
NAMED = dict(zip("xyz", Y.T, strict=True))
CLASSES = np.array(["ant", "bee", "cat"])[np.argmax(X[:, :3], axis=1)]
LENGTHS = np.full(9, 4)
WARM = {"_warm", "_dual", "_dual_solution"}  # left out of files

Multi, Classes, Ranker = maxmargin.MultiLabelSVC, maxmargin.MultiClassSVC, maxmargin.LabelRanker
Sparse, Small, Pairs = maxmargin.SparseMultiLabelSVC, maxmargin.SparseMultiClassSVC, maxmargin.SubmodularSVC
Chain, Latent = maxmargin.ChainSVC, maxmargin.LatentSVC
GROUPS = list(X.reshape(9, 4, 5))
CODES = np.arange(36) % 3
HOLES = np.where(RNG.random((36, 3)) < 0.2, np.nan, Y)
# Kinds of labels that scikit-learn and this package accept.
LABELS = {
    "indicator": Y,
    "booleans": Y.astype(bool),
    "bytes": Y.astype(np.uint8),
    "floats": Y.astype(float),
    "signs": 2 * Y - 1,
    "matrix": sp.csr_matrix(Y),
    "array": sp.csr_array(Y),
    "pandas": pd.DataFrame(NAMED),
    "polars": pl.DataFrame(NAMED),
    "numbered frame": pd.DataFrame(Y),
    "lists": [[["a", "b", "c"][k] for k in range(3) if row[k]] for row in Y],
    "sets": [set(np.array(list("xyz"))[row > 0]) for row in Y],
    "mixed names": [{[1, "b", ("c", 2)][k] for k in range(3) if row[k]} for row in Y],
    "classes": CODES,
    "halves": CODES / 2 * 2.0,
    "words": CLASSES,
    "objects": CLASSES.astype(object),
    "two": CODES % 2,
    "one": np.zeros(36, int),
    "flags": CODES > 0,
}
CASES = {
    **{f"multilabel, {name}": (Multi(random_state=0), X, y) for name, y in LABELS.items()},
    **{f"ranking, {name}": (Ranker(), X, LABELS[name]) for name in ("lists", "words", "matrix", "pandas")},
    **{f"sparse, {name}": (Sparse(max_basis=3), X, LABELS[name]) for name in ("lists", "words", "matrix")},
    "multilabel prior": (Multi(prior=priors.from_labels), X, Y),
    "multilabel warm": (Multi(warm_start=True, random_state=0), X, Y),
    "multilabel float32 csr": (Multi(), sp.csr_array(X.astype(np.float32)), sp.csr_array(Y)),
    "multilabel random state": (Multi(random_state=np.random.RandomState(5)), X, Y),
    "multilabel by blocks": (Multi(memory_limit=0, random_state=0), X, sp.csr_matrix(Y)),
    "multilabel squared": (Multi(loss="squared_hinge", random_state=0), X, Y),
    "multilabel kernel": (Multi(kernel="rbf", prior=priors.from_labels), X, Y),
    "multilabel kernel csr": (Multi(kernel="poly"), sp.csr_array(X), CLASSES),
    "multilabel chi2": (Multi(kernel="chi2", gamma=0.5), sp.csr_matrix(np.abs(X)), Y),
    "multilabel holes": (Multi(), X, HOLES),
    "multilabel constant": (Multi(), X, Y * [1, 0, 1]),
    "multilabel weights": (
        Multi(class_weight=np.ones((3, 2)), label_margin=[1.0, 2.0, 1.0], n_jobs=-1), X, Y),
    "multilabel dict": (
        Multi(label_weight={0: 2.0}, class_weight={np.int64(1): 2.0}, time_limit=60.0), X, Y),
    "multilabel sparse prior": (Multi(prior=sp.csr_array(np.eye(3)), loss="tied"), X, Y),
    "multilabel tied": (
        Multi(prior=priors.identity(3).tolist(), C=np.float32(2), max_iter=np.int64(50)), X, Y),
    "multilabel frame": (Multi(), pd.DataFrame(X, columns=list("abcde")), Y),
    "chain": (Chain(random_state=0), GROUPS, list(CLASSES.reshape(9, 4))),
    "chain strings": (Chain(C=3.0), GROUPS, ["abca"] * 9),
    "chain arrays": (Chain(max_iter=3), X.reshape(9, 4, 5), CODES.reshape(9, 4)),
    "chain rows": (Chain(max_iter=3), X, CODES),
    "latent": (Latent(random_state=0), GROUPS, CLASSES[::4]),
    "latent given": (Latent(init=np.zeros(9, int), max_iter=3), GROUPS, CODES[::4]),
    "latent starts": (Latent(n_init=2, max_iter=3, random_state=1), X, CODES),
    "multiclass": (Classes(random_state=0), X, CLASSES),
    "multiclass kernel": (Classes(kernel="rbf", random_state=0), X.astype(np.float32), CLASSES),
    "multiclass costs": (Classes(cost_matrix=(1 - np.eye(3)).tolist(), class_weight="balanced"), X, CODES),
    "multiclass precomputed": (Classes(kernel="precomputed"), X @ X.T, CODES),
    "multiclass one": (Classes(), X, np.zeros(36, int)),
    "ranking": (Ranker(), X, Y),
    "ranking average": (Ranker(average=True, trace=True), X, CLASSES),
    "ranking entropy": (Ranker(regulariser="entropy", margin=0.01), np.abs(X), CLASSES),
    "ranking weighted": (Ranker(weighting="sqrt-idf"), np.abs(X), CLASSES),
    "ranking sparse": (Ranker(n_features=50), sp.csr_array(X), CLASSES),
    "ranking named": (Ranker(n_features=10), pd.DataFrame(X, columns=list("abcde")), CODES),
    "ranking empty sets": (Ranker(), X, [set()] * 35 + [{"a"}]),
    "ranking top": (Ranker(n_predicted=2, update="fixed"), X, Y),
    "submodular": (Pairs(), X, Y),
    "submodular polars": (Pairs(random_state=0), X, pl.DataFrame(NAMED)),
    "submodular bcfw": (Pairs(solver="bcfw", random_state=0), X, sp.csr_array(Y)),
    "submodular without pairs": (Pairs(pair_fraction=0.0, tol=0.1), X, Y),
    "submodular constant": (Pairs(tol=0.1, n_jobs=2), X, Y * [1, 0, 1]),
    "sparse multiclass": (Small(), X, CLASSES),
    "sparse multiclass csr": (Small(keep_path=False, max_basis=3), sp.csr_matrix(X), CLASSES),
    "sparse multiclass bias": (Small(fit_intercept=True, full_bound=True, max_basis=3), X, CODES),
    "sparse multilabel sets": (Sparse(), X, [frozenset(np.flatnonzero(row)) for row in Y]),
}  # fmt: skip
# One model of each class, for the other ways to store models.
PLAIN = ["multilabel, sets", "multilabel, pandas", "multilabel kernel", "multilabel prior", "chain", "latent",
         "multiclass", "multiclass kernel", "ranking average", "ranking entropy", "submodular",
         "sparse multiclass", "sparse multilabel sets"]  # fmt: skip


def fitted(case):
    model, X, y = CASES[case]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clone(model).fit(X, y), X


def assert_same(a, b, where="model"):
    """Check equality of all attributes, with dtypes and memory layout."""
    assert type(a) is type(b), where
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype and a.shape == b.shape, where
        if a.ndim == 2 and min(a.shape) > 1:
            assert (a.strides[0] < a.strides[1]) == (b.strides[0] < b.strides[1]), where
        assert a.tobytes() == b.tobytes() if a.dtype != object else a.tolist() == b.tolist(), where
    elif sp.issparse(a):
        for part in ("data", "indices", "indptr"):
            assert_same(getattr(a, part), getattr(b, part), f"{where}.{part}")
    elif isinstance(a, dict):
        assert list(a) == list(b), where
        for key in a:
            assert_same(a[key], b[key], f"{where}[{key!r}]")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), where
        for k, (left, right) in enumerate(zip(a, b, strict=True)):
            assert_same(left, right, f"{where}[{k}]")
    elif isinstance(a, np.random.RandomState):
        assert_same(a.get_state(), b.get_state(), where)
    elif isinstance(a, (pd.DataFrame, pl.DataFrame)):
        assert a.equals(b), where
    elif hasattr(a, "__dict__") and not isinstance(a, type) and not callable(a):
        state = a.__getstate__() if hasattr(a, "get_params") else vars(a)
        other = b.__getstate__() if hasattr(b, "get_params") else vars(b)
        assert_same(*({k: v for k, v in d.items() if k not in WARM} for d in (state, other)), where)
    else:
        assert a == b or (a != a and b != b), where


def test_every_public_estimator_has_a_case():
    covered = {type(model).__name__ for model, _, _ in CASES.values()}
    assert covered == set(ESTIMATORS) - {"StreamRanker"}


def test_a_stream_of_dictionaries_comes_back(tmp_path):
    model = maxmargin.StreamRanker()
    for words, label in (("goal match", "sports"), ("flight hotel", "travel"), ("match hotel", "sports")):
        model.learn_one(dict.fromkeys(words.split(), 1.0), label)
    maxmargin.save(model, tmp_path / "m.mm")
    back = maxmargin.load(tmp_path / "m.mm")
    assert back.rank_one({"flight": 1}) == model.rank_one({"flight": 1})
    for each in (model, back):
        each.learn_one({"sun": 1, "beach": 1}, "holiday")
    assert_same(back.ranker.coef_, model.ranker.coef_)


@pytest.mark.parametrize("case", CASES)
def test_a_model_comes_back_bit_for_bit(case, tmp_path):
    model, X = fitted(case)
    path = tmp_path / "model.mm"
    maxmargin.save(model, path)
    back = maxmargin.load(path)
    assert_same(back, model)
    assert_same(back.predict(X), model.predict(X))
    if hasattr(model, "decision_function"):
        assert_same(back.decision_function(X), model.decision_function(X))
    again = tmp_path / "again.mm"
    maxmargin.save(back, again)
    assert again.read_bytes() == path.read_bytes()


def test_a_ranker_without_labels_is_saved(tmp_path):
    ranker = maxmargin.LabelRanker().partial_fit(X, [set()] * len(X))
    maxmargin.save(ranker, tmp_path / "m.mm")
    assert maxmargin.load(tmp_path / "m.mm").predict(X) == ranker.predict(X)


def test_a_stream_goes_on_where_it_was_saved(tmp_path):
    whole = maxmargin.LabelRanker().partial_fit(X[:18], CLASSES[:18])
    maxmargin.save(whole, tmp_path / "m.mm")
    resumed = maxmargin.load(tmp_path / "m.mm")
    whole.partial_fit(X[18:], CLASSES[18:])
    resumed.partial_fit(X[18:], CLASSES[18:])
    assert_same(resumed.coef_, whole.coef_)


def test_an_unfitted_estimator_keeps_its_parameters(tmp_path):
    maxmargin.save(maxmargin.MultiLabelSVC(C=0.3, prior=np.eye(2)), tmp_path / "m.mm")
    back = maxmargin.load(tmp_path / "m.mm")
    assert back.C == 0.3 and back.prior.tolist() == [[1, 0], [0, 1]]
    with pytest.raises(ModelFileError, match=r"'C' parameter of MultiLabelSVC.* Got inf"):
        maxmargin.save(maxmargin.MultiLabelSVC(C=float("inf")), tmp_path / "m.mm")


def test_any_safetensors_reader_opens_the_file(tmp_path):
    model, _ = fitted("multilabel, indicator")
    maxmargin.save(model, tmp_path / "m.mm")
    tensors = load_file(tmp_path / "m.mm").values()
    # An array in Fortran order is stored as its transpose.
    assert any(np.array_equal(tensor, one) for tensor in tensors for one in (model.coef_, model.coef_.T))


def test_describe_builds_no_model(tmp_path):
    model, _ = fitted("multilabel, indicator")
    maxmargin.save(model, tmp_path / "m.mm", metadata={"data": "toy", "rows": 36})
    about = describe(tmp_path / "m.mm")
    assert about["class"] == "MultiLabelSVC" and about["metadata"] == {"data": "toy", "rows": 36}
    assert about["parameters"]["C"] == 1.0 and about["maxmargin"] == maxmargin.__version__
    json.dumps(about)


def test_a_model_that_needs_code_is_refused(tmp_path):
    model = maxmargin.MultiLabelSVC(prior=lambda Y: np.eye(3)).fit(X, Y)
    with pytest.raises(ModelFileError, match=r"MultiLabelSVC\.prior is a function of your own"):
        maxmargin.save(model, tmp_path / "m.mm")
    model.note = "of mine"
    model.prior = None
    with pytest.raises(ModelFileError, match=r"MultiLabelSVC\.note is not declared"):
        maxmargin.save(model, tmp_path / "m.mm")
    with pytest.raises(ModelFileError, match=r"Only an estimator"):
        maxmargin.save({"a": 1}, tmp_path / "m.mm")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("case", PLAIN)
def test_skops_works_with_the_documented_types(tmp_path, case):
    skops = pytest.importorskip("skops.io", reason="skops is not installed")
    model, X = fitted(case)
    skops.dump(model, tmp_path / "m.skops")
    assert set(skops.get_untrusted_types(file=tmp_path / "m.skops")) <= set(SKOPS_TRUSTED)
    assert_same(skops.load(tmp_path / "m.skops", trusted=SKOPS_TRUSTED).predict(X), model.predict(X))


SVC = maxmargin.MultiLabelSVC(random_state=0)
CALIBRATED = maxmargin.Calibrated(SVC, cv=2)
AROUND = {
    "sigmoid": (clone(CALIBRATED).set_params(method="sigmoid"), pd.DataFrame(NAMED)),
    "isotonic": (clone(CALIBRATED).set_params(method="isotonic", ensemble=True), Y),
    "temperature": (maxmargin.Calibrated(maxmargin.MultiClassSVC(random_state=0), cv=2), CLASSES),
    "label sets": (maxmargin.LabelSets(CALIBRATED, recall=0.5, random_state=0), pl.DataFrame(NAMED)),
    "tree": (maxmargin.TreeLabels(CALIBRATED, edges=[(0, 1), (0, 2)]), Y),
    "thresholds": (ThresholdTuner(SVC, cv=2), pd.DataFrame(NAMED)),
    "pipeline": (make_pipeline(StandardScaler(), SVC), pd.DataFrame(NAMED)),
}


@pytest.mark.parametrize("name", AROUND)
def test_a_wrapped_model_comes_back(tmp_path, name):
    skops = pytest.importorskip("skops.io", reason="skops is not installed")
    model, y = AROUND[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = clone(model).fit(X, y)
    maxmargin.save(model, tmp_path / "m.mm")
    assert_same(maxmargin.load(tmp_path / "m.mm").predict(X), model.predict(X))
    skops.dump(model, tmp_path / "m.skops")
    assert_same(skops.load(tmp_path / "m.skops", trusted=SKOPS_TRUSTED).predict(X), model.predict(X))


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_a_pickle_with_a_frame_answers_in_frames(frame):
    """Pickles of earlier versions hold an empty frame instead of the name of its library."""
    labels = frame(NAMED)
    model = clone(SVC).fit(X, labels)
    before = LabelSpace.__new__(LabelSpace)
    before.__dict__.update(vars(model._space), container=nw.from_native(labels).head(0))
    answer = model.predict(X)
    model._space = pickle.loads(pickle.dumps(before))
    assert_same(model.predict(X), answer)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arrays_that_are_mostly_zero_take_little_room_and_come_back_bit_for_bit(order, dtype):
    rng = np.random.default_rng(0)
    filled = np.where(rng.random((700, 500)) < 0.05, rng.normal(size=(700, 500)), 0.0)
    array = np.asarray(filled, dtype, order=order)
    array[3, 4], array[5, 6] = -0.0, 0.0
    encoder = Encoder()
    document = encoder.encode(array, "array")
    assert sum(part.nbytes for part in encoder.tensors.values()) < 0.12 * array.nbytes
    assert encoder.encode(array, "again") == document and len(encoder.tensors) == 2
    back = Decoder(encoder.tensors).decode(json.loads(json.dumps(document)))
    assert back.tobytes("A") == array.tobytes("A") and back.flags.f_contiguous == array.flags.f_contiguous
    assert back.dtype == array.dtype and np.signbit(back[3, 4]) and not np.signbit(back[5, 6])


@pytest.mark.parametrize("share", [0.0001, 0.5])
def test_other_arrays_are_stored_as_they_are(share):
    rng = np.random.default_rng(0)
    array = np.where(rng.random((500, 500)) < share, rng.normal(size=(500, 500)), 0.0)
    encoder = Encoder()
    assert encoder.encode(array, "array")["$"] == "array"


def test_dense_weights_that_are_mostly_zero_make_a_small_file(tmp_path):
    rng = np.random.default_rng(0)
    model, _ = fitted("multilabel, indicator")
    model.n_features_in_ = 100_000
    model.coef_ = np.where(rng.random((3, 100_000)) < 0.02, 1.5, 0.0)
    maxmargin.save(model, tmp_path / "model.mm")
    assert (tmp_path / "model.mm").stat().st_size < 0.3 * model.coef_.nbytes
    back = maxmargin.load(tmp_path / "model.mm")
    assert back.coef_.tobytes("A") == model.coef_.tobytes("A") and back.coef_.strides == model.coef_.strides


@pytest.mark.parametrize(
    "change, message",
    [
        ({"shape": [3, 100_000]}, "has only 100 entries"),
        ({"shape": [10**9, 10**9]}, "has only 100 entries"),
        ({"shape": [10**400]}, "has only 100 entries"),
        ({"shape": [3, 5]}, "not in its shape, or not in order"),
        ({"shape": [-3, -200]}, "not in its shape, or not in order"),
        ({"values": "fewer"}, "not in its shape, or not in order"),
        ({"values": "places"}, "not in its shape, or not in order"),
        ({"places": "twice"}, "not in its shape, or not in order"),
    ],
)
def test_an_array_by_its_entries_is_checked(change, message):
    places = np.arange(0, 200, 2, dtype=np.uint32)
    tensors = {"places": places, "values": np.ones(100), "fewer": np.ones(99), "twice": places // 4}
    sound = {"$": "sparse", "shape": [3, 200], "order": "C", "places": "places", "values": "values"}
    assert Decoder(tensors).decode(sound).sum() == 100
    with pytest.raises(ModelFileError, match=message):
        Decoder(tensors).decode(sound | change)


def test_arrays_do_not_share_the_places_of_their_entries():
    tensors = {"places": np.arange(100, dtype=np.uint32), "values": np.ones(100), "others": np.zeros(100)}
    one = {"$": "sparse", "shape": [600], "order": "C", "places": "places", "values": "values"}
    decoder = Decoder(tensors)
    first, second = decoder.decode([one, dict(one)])
    assert first is second
    for change in ({"shape": [300, 2]}, {"values": "others"}):
        with pytest.raises(ModelFileError, match="share the positions"):
            decoder.decode(one | change)
