"""A model file holds only what its classes declare; `save` and `load` both check."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.feature_selection import SelectKBest, chi2, mutual_info_classif
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

import maxmargin
from maxmargin._names import ESTIMATORS
from maxmargin.baselines import ThresholdTuner
from maxmargin.core.state import State
from maxmargin.io.checked import CLASSES, declaration, find_class
from maxmargin.io.steps import _pattern
from maxmargin.persistence import ModelFileError
from tests.fuzz.forge import Forged

FOLDER = Path(__file__).parents[1] / "fixtures" / "models"
TEXTS = ["red round ball", "green square box", "red box", "green ball of wool"] * 3
KINDS = ["ball", "box", "box", "ball"] * 3
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(30, 4)), (RNG.random((30, 3)) < 0.5).astype(int)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Files of models that are not fixtures."""
    folder = tmp_path_factory.mktemp("made")
    K = X @ X.T
    for name, model in {
        "text": make_pipeline(TfidfVectorizer(), maxmargin.MultiLabelSVC()).fit(TEXTS, KINDS),
        "counts": make_pipeline(CountVectorizer(), maxmargin.LabelRanker()).fit(TEXTS, KINDS),
        "tuner": ThresholdTuner(maxmargin.MultiLabelSVC(), cv=2).fit(X, Y),
        "promised": maxmargin.LabelSets(maxmargin.MultiLabelSVC(), recall=0.5, random_state=0).fit(X, Y),
        "precomputed": maxmargin.MultiLabelSVC(kernel="precomputed").fit(K, Y),
        "scaled": make_pipeline(MaxAbsScaler(), maxmargin.LabelRanker()).fit(X, Y),
        "csr": maxmargin.MultiClassSVC(kernel="poly").fit(sp.csr_array(X), np.arange(30) % 3),
        "framed": maxmargin.MultiLabelSVC().fit(X, pd.DataFrame(Y, columns=list("xyz"))),
        "clouds": maxmargin.SparseMultiClassSVC(max_basis=2, basis="learned", random_state=0).fit(X, Y[:, 0]),
        "random": maxmargin.MultiLabelSVC(random_state=np.random.RandomState(0)).fit(X, Y),
    }.items():
        maxmargin.save(model, folder / name)
    return folder


def step(k):
    """The state of a step of a pipeline."""
    return lambda f: f.state["steps"][k]["items"][1]["state"]


def put(**values):
    """Change the state of the model."""
    return lambda f: f.state.update(values)


def inside(part, **values):
    """Change the state of a part of the model."""
    return lambda f: f.state[part]["state"].update(values)


def resized(part, name, shape, dtype="f8", value=0.0):
    """Give an array of a part another shape."""

    def change(f):
        where = f.state[part]["state"] if part else f.state
        where[name] = f.array("forged", np.full(shape, value, dtype))

    return change


def in_step(k, **values):
    return lambda f: step(k)(f).update(values)


def label_codes(f):
    index = f.state["_labels"]["state"]["index"]["items"]
    index[0][1] = 10**6


def no_classes(f):
    empty = f.array("empty", np.zeros(0, np.int64))
    f.state["classes_"] = f.state["_space"]["state"]["classes"] = empty
    f.state["coef_"] = f.array("none", np.zeros((0, 4)))
    for name in ("intercept_", "_constant_scores"):
        f.state[name] = f.array(name, np.zeros(0))
    f.state["constant_labels_"] = f.array("flags", np.zeros(0, bool))


def wide_words(f):
    f.state["_labels"]["state"]["space"]["state"]["classes"]["dtype"] = "<U536870911"


def stolen_slot(f):
    f.state["_state"]["state"]["slots"] = f.array("slots", np.full(4, 4, np.int32))


def columns_beyond(f):
    f.state["columns"]["items"][0][1] = 10**6


def support_beyond(f):
    known = f.tensors[f.state["support_"]["tensor"]]
    f.state["support_"] = f.array("beyond", np.full_like(known, 10**9))


def random_place(f):
    f.state["random_state"]["state"]["items"][2] = 10**6


def colliding(f):
    """Tuples of -1 and -2, which have one hash."""
    pairs = itertools.islice(itertools.product([-1, -2], repeat=14), 10_001)
    items = [[{"$": "tuple", "items": list(pair)}, k] for k, pair in enumerate(pairs)]
    f.state["columns"] = {"$": "dict", "items": items}


def backward_rows(f):
    rows = f.state["support_vectors_"]
    rows["indptr"] = f.array("backward", -f.tensors[rows["indptr"]["tensor"]])


def unfitted(f):
    f.state["estimator_"] = f.state["estimator"]


ATTACKS = {
    "backward rows": ("csr", backward_rows, "before they begin"),
    "no scales": ("scaled", in_step(0, scale_=None), "scale_"),
    "no tokens": ("text", in_step(0, token_pattern=None), "token_pattern"),
    "a tuner of nothing": ("tuner", unfitted, "not fitted"),
    "colliding names": ("stream", colliding, "tuples"),
    "colliding numbers": (
        "multiclass",
        put(class_weight={"$": "dict", "items": [[k * (2**61 - 1), 1.0] for k in range(100)]}),
        "64 bits",
    ),
    "label codes": ("ranking", label_codes, "numbered"),
    "slots": ("ranking", stolen_slot, "slots"),
    "narrow W": ("ranking", resized("_state", "W", (1, 3)), "fewer rows or columns"),
    "wide W": ("ranking", resized("_state", "W", (4, 1)), "fewer rows or columns"),
    "flat W": ("ranking", resized("_state", "W", 12), "W"),
    "W of NaN": ("ranking", resized("_state", "W", (4, 4), value=np.nan), "NaN"),
    "whole W": ("ranking", resized("_state", "W", (4, 4), "i8", 0), "W"),
    "no average": ("ranking-idf", resized("_state", "weighted", (0, 0)), "weighted"),
    "counts": ("ranking-idf", resized("_state", "counts", 2, "i8", 0), "counts"),
    "average without sums": ("ranking", inside("_state", average=True), "weighted"),
    "narrow theta": ("ranking-entropy", resized("_state", "theta", (1, 1)), "theta|v:"),
    "narrow v": ("ranking-entropy", resized("_state", "v", (1, 1)), "v:"),
    "short z": ("ranking-entropy", resized("_state", "z", 1, value=1.0), "z:"),
    "births": ("ranking", inside("_state", born=[0]), "born"),
    "more labels": ("ranking", inside("_state", n_labels=10**6), "n_classes"),
    "huge rounds": ("ranking", inside("_state", n_steps=2**63), "n_steps"),
    "threshold": ("ranking", resized("_state", "threshold", 3, value=-1.0), "threshold"),
    "other regulariser": ("ranking", put(regulariser="entropy"), "regulariser"),
    "other width": ("ranking", put(n_features=10), "n_features"),
    "stream columns": ("stream", columns_beyond, "numbered"),
    "no classes": ("multilabel-indicator", no_classes, "empty"),
    "weights of NaN": ("submodular", resized("", "coef_", (3, 4), value=np.nan), "coef_"),
    "infinite pairs": ("submodular", resized("", "interaction_", (3, 3), value=np.inf), "interaction_"),
    "repelling pairs": ("submodular", resized("", "interaction_", (3, 3), value=-1.0), "interaction_"),
    "pairs beyond": ("submodular", resized("", "pairs_", (1, 2), "i8", 9), "pairs_"),
    "huge weights": ("submodular", resized("", "intercept_", 3, value=1e300), "intercept_"),
    "narrow chain": ("chain", resized("", "transitions_", (2, 3)), "transitions_"),
    "single chain": ("chain", resized("", "coef_", (3, 4), "f4"), "coef_"),
    "narrow latent": ("latent", resized("", "coef_", (3, 2)), "coef_"),
    "degree": ("multilabel-kernel", put(degree=10**12), "degree"),
    "degree of the kernel": ("multilabel-kernel", inside("_kernel", degree=10**12), "degree"),
    "other kernel": ("multiclass-kernel", put(kernel="precomputed"), "kernel"),
    "name of the kernel": ("multilabel-kernel", inside("_kernel", name="callable"), "name"),
    "function of the kernel": (
        "multilabel-kernel",
        inside("_kernel", function={"$": "function", "value": "identity"}),
        "function",
    ),
    "support beyond": ("precomputed", support_beyond, "beyond the columns"),
    "basis": ("sparse-multiclass", resized("", "basis_vectors_", (5, 3)), "basis"),
    "narrow spread": ("clouds", resized("", "_spread", (2, 3)), "_spread"),
    "negative spread": ("clouds", resized("", "_spread", (2, 4), value=-1.0), "_spread"),
    "spread of NaN": ("clouds", resized("", "_spread", (2, 4), value=np.nan), "_spread"),
    "spread of another kernel": ("clouds", inside("_kernel", name="poly", metric=None), "spread"),
    "path": ("sparse-multilabel", put(path_=[]), "path_"),
    "n_jobs": ("chain", put(n_jobs=10**9), "n_jobs"),
    "n_jobs of none": ("chain", put(n_jobs=0), "n_jobs"),
    "planes": ("submodular", put(plane_cache=10**15), "plane_cache"),
    "C of words": ("multiclass", put(C="much"), "'C' parameter"),
    "kernel of code": ("multiclass", put(kernel={"$": "function", "value": "identity"}), "kernel"),
    "history of words": (
        "multiclass",
        put(history_=[{"$": "dict", "items": [["epoch", "one"]]}]),
        "history_",
    ),
    "wide words": ("ranking-idf", wide_words, "entries of"),
    "memory for answers": (
        "multilabel",
        inside("_space", container={"$": "type", "value": "ndarray"}),
        "do not come in",
    ),
    "texts of numbers": ("chain", inside("_labels", container={"$": "type", "value": "int"}), "container"),
    "kind": ("multilabel", inside("_space", kind="binary"), "binary|n_columns"),
    "random place": ("random", random_place, "random state"),
    "undeclared": ("multiclass", put(predict_proba_=1.0), "is not declared"),
    "shadowed": ("multiclass", put(predict="x"), "is not declared"),
    "missing": ("multiclass", lambda f: f.state.pop("intercept_"), "intercept_ is missing"),
    "memory": ("pipeline", put(memory="/tmp/evil"), "memory"),
    "steps": ("pipeline", put(steps=[]), "steps"),
    "a model within": ("pipeline", lambda f: f.state["steps"].reverse(), "expected"),
    "narrow scaler": (
        "pipeline",
        lambda f: step(0)(f).update(mean_=f.array("mean", np.zeros(2))),
        "mean_",
    ),
    "mean beyond its scale": (
        "pipeline",
        lambda f: step(0)(f).update(mean_=f.array("mean", np.full(4, 1e60))),
        "above 1e\\+30",
    ),
    "idf of infinity": (
        "text",
        lambda f: step(0)(f)["_tfidf"]["state"].update(idf_=f.array("idf", np.full(8, 1e99))),
        "idf_",
    ),
    "a frame for a word": (
        "framed",
        lambda f: f.state["_space"]["state"].update(dtype=f.state["_space"]["state"]["container"]),
        "a frame for predictions",
    ),
    "no mean": ("pipeline", in_step(0, mean_=None), "mean_"),
    "file names": ("text", in_step(0, input="filename"), "input"),
    "backtracking": ("text", in_step(0, token_pattern="(a+)+$"), "token_pattern"),
    "tokenizer": ("text", in_step(0, tokenizer={"$": "function", "value": "identity"}), "tokenizer"),
    "codec": ("text", in_step(0, encoding="idna"), "encoding"),
    "n-grams": ("text", in_step(0, ngram_range={"$": "tuple", "items": [1, 10**9]}), "ngram_range"),
    "vocabulary": ("text", lambda f: step(0)(f)["vocabulary_"]["items"].pop(), "columns|n_features"),
    "word beyond": (
        "counts",
        lambda f: step(0)(f)["vocabulary_"]["items"][0].__setitem__(1, 10**9),
        "numbered",
    ),
    "thresholds": ("tuner", resized("", "thresholds_", 2), "thresholds_"),
    "two classes of three": (
        "promised",
        inside("_labels", kind="binary"),
        "it has binary labels, but 3 classes",
    ),
    "folds": ("tuner", put(cv={"$": "type", "value": "list"}), "cv"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_is_not_declared_is_refused(attack, made, tmp_path):
    name, change, words = ATTACKS[attack]
    source = FOLDER / f"{name}.mm"
    forged = Forged.of(source if source.exists() else made / name)
    assert maxmargin.load(forged.write(tmp_path / "sound.mm")) is not None
    change(forged)
    with pytest.raises(ModelFileError, match=words) as refusal:
        maxmargin.load(forged.write(tmp_path / "m.mm"))
    assert str(tmp_path / "m.mm") in str(refusal.value)


@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
def test_a_pipe_and_a_directory_are_no_models(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(ModelFileError, match="is not a file"):
            maxmargin.load(path)


@pytest.mark.parametrize(
    "dtype, shape",
    [
        *((dtype, [2]) for dtype in ("BF16", "F8_E4M3", "C64", "F4", "I128", "", None, 3)),
        *(("F4", shape) for shape in ([-2], [2**62, 4], [0, 2**62], "x", [2.0])),
    ],
)
def test_arrays_that_numpy_does_not_have_are_refused(dtype, shape, tmp_path):
    document = json.dumps(Forged.of(FOLDER / "multiclass.mm").document)
    entry = {"dtype": dtype, "shape": shape, "data_offsets": [0, 4]}
    header = json.dumps({"__metadata__": {"maxmargin": document, "sha256": "0"}, "t0": entry}).encode()
    (tmp_path / "m.mm").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(ModelFileError):
        maxmargin.load(tmp_path / "m.mm")


def test_every_class_of_a_file_declares_what_it_holds():
    for prefix, table in CLASSES.items():
        for name in table:
            found = declaration(find_class(f"{prefix}.{name}" if prefix else name))
            assert isinstance(found, State) and (found.fields or found.parameters), name


def test_what_load_refuses_save_refuses(tmp_path):
    model = maxmargin.MultiClassSVC().fit(X, Y[:, 0] + Y[:, 1])
    model.coef_ = model.coef_ * np.nan
    with pytest.raises(ModelFileError, match=r"MultiClassSVC\.coef_: it holds NaN"):
        maxmargin.save(model, tmp_path / "m.mm")
    pipeline = make_pipeline(StandardScaler(), maxmargin.MultiClassSVC(), memory=str(tmp_path))
    with pytest.raises(ModelFileError, match=r"Pipeline\.memory"):
        maxmargin.save(pipeline, tmp_path / "m.mm")
    assert not (tmp_path / "m.mm").exists()


@pytest.mark.parametrize("scaler", [StandardScaler(), MinMaxScaler(), RobustScaler(), MaxAbsScaler()])
@pytest.mark.parametrize("units", [1e-38, 1e38])
def test_pipelines_hold_features_in_any_units(scaler, units, tmp_path):
    """The shift and scale of a first scaler have the size of X, so they are never refused."""
    rows = units * (100 + X)
    model = make_pipeline(scaler, maxmargin.MultiLabelSVC()).fit(rows, Y)
    maxmargin.save(model, tmp_path / "m.mm")
    np.testing.assert_array_equal(maxmargin.load(tmp_path / "m.mm").predict(rows), model.predict(rows))


def test_scalers_after_another_count_in_its_units(tmp_path):
    model = make_pipeline(StandardScaler(), StandardScaler(), maxmargin.MultiLabelSVC()).fit(X, Y)
    model[1].scale_ = np.full(4, 1e-31)
    with pytest.raises(ModelFileError, match=r"above 1e\+30"):
        maxmargin.save(model, tmp_path / "m.mm")


def test_fillings_count_in_the_units_of_their_column(tmp_path):
    rows = np.where(X > 1.5, np.nan, X) * [1e50, 1.0, 1.0, 1.0]
    model = make_pipeline(SimpleImputer(), StandardScaler(), maxmargin.MultiLabelSVC()).fit(rows, Y)
    maxmargin.save(model, tmp_path / "m.mm")
    model[0].statistics_[1] = 1e50
    with pytest.raises(ModelFileError, match=r"above 1e\+30"):
        maxmargin.save(model, tmp_path / "m.mm")


PROJECTED = {
    "pca": (make_pipeline(PCA(2), maxmargin.MultiLabelSVC()), X),
    "whitened": (make_pipeline(StandardScaler(), PCA(2, whiten=True), maxmargin.MultiLabelSVC()), X),
    "scaled components": (make_pipeline(PCA(), StandardScaler(), maxmargin.MultiLabelSVC()), X),
    "tiny rows": (make_pipeline(PCA(2), StandardScaler(), maxmargin.MultiLabelSVC()), 1e-38 * X),
    "svd": (make_pipeline(TfidfVectorizer(), TruncatedSVD(2), maxmargin.MultiClassSVC()), TEXTS),
    "centred svd": (
        make_pipeline(CountVectorizer(), TruncatedSVD(3), StandardScaler(), maxmargin.MultiClassSVC()),
        TEXTS,
    ),
    "best": (make_pipeline(StandardScaler(), SelectKBest(k=2), maxmargin.MultiClassSVC()), X),
    "best words": (
        make_pipeline(TfidfVectorizer(), SelectKBest(chi2, k=3), maxmargin.MultiClassSVC()),
        TEXTS,
    ),
    "all of few": (make_pipeline(SelectKBest(k="all"), PCA(1), maxmargin.MultiClassSVC()), X),
    "information": (
        make_pipeline(SelectKBest(mutual_info_classif, k=1), maxmargin.MultiClassSVC()),
        X,
    ),
    "frames": (
        make_pipeline(
            SelectKBest(k=3).set_output(transform="pandas"),
            PCA(2).set_output(transform="pandas"),
            maxmargin.MultiClassSVC(),
        ),
        pd.DataFrame(X, columns=list("abcd")),
    ),
    "part of a table": (
        make_pipeline(
            ColumnTransformer(
                [("a", make_pipeline(StandardScaler(), PCA(1)), [0, 1]), ("b", SelectKBest(k=1), [2, 3])]
            ),
            maxmargin.MultiClassSVC(),
        ),
        X,
    ),
}


def projected(name):
    model, rows = PROJECTED[name]
    y = KINDS if rows is TEXTS else Y if isinstance(model[-1], maxmargin.MultiLabelSVC) else np.arange(30) % 3
    return clone(model).fit(rows, y), rows


@pytest.mark.parametrize("name", PROJECTED)
def test_components_and_best_features_are_held(name, tmp_path):
    model, rows = projected(name)
    maxmargin.save(model, tmp_path / "m.mm")
    again = maxmargin.load(tmp_path / "m.mm")
    np.testing.assert_array_equal(again.decision_function(rows), model.decision_function(rows))
    assert repr(again) == repr(model)
    maxmargin.save(again, tmp_path / "again.mm")
    assert (tmp_path / "again.mm").read_bytes() == (tmp_path / "m.mm").read_bytes()


BROKEN = {
    "far": ("pca", "components_", lambda a: 1e90 * a, r"above 1e\+30"),
    "farther": ("scaled components", "components_", lambda a: 1e99 * a, "numbers above|expected"),
    "narrow": ("svd", "components_", lambda a: a[:, :-1], "n_features|columns"),
    "fewer": ("pca", "components_", lambda a: a[:1], "n_components"),
    "nan": ("pca", "mean_", lambda a: a * np.nan, "mean_"),
    "negative": ("whitened", "explained_variance_", lambda a: -a - 1, "explained_variance_"),
    "other scores": ("best", "scores_", lambda a: a[:-1], "scores_|n_features"),
    "function": ("best", "score_func", lambda f: print, "score_func"),
    "prior": ("best", "score_func", lambda f: maxmargin.priors.from_labels, "score_func"),
    "more": ("best", "k", lambda k: 3, "another number of columns"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_broken_components_are_refused(fault, tmp_path):
    name, attribute, change, words = BROKEN[fault]
    model, _ = projected(name)
    step = next(step for _, step in model.steps if hasattr(step, attribute))
    setattr(step, attribute, change(getattr(step, attribute)))
    with pytest.raises(ModelFileError, match=words):
        maxmargin.save(model, tmp_path / "m.mm")


def test_words_do_not_stand_for_missing_numbers(tmp_path):
    model = make_pipeline(SimpleImputer(), maxmargin.MultiLabelSVC()).fit(X, Y)
    for missing in ("", None):
        model[0].missing_values = missing
        with pytest.raises(ModelFileError, match="missing_values"):
            maxmargin.save(model, tmp_path / "m.mm")


def test_a_wide_ranker_is_saved_once_it_has_learnt(tmp_path, monkeypatch):
    monkeypatch.setattr("maxmargin.ranking.estimator.WIDEST_UNSEEN", 10)
    ranker = maxmargin.LabelRanker(n_features=11)
    with pytest.raises(ModelFileError, match="learnt nothing"):
        maxmargin.save(ranker, tmp_path / "m.mm")
    maxmargin.save(ranker.partial_fit(X, Y), tmp_path / "m.mm")
    np.testing.assert_array_equal(maxmargin.load(tmp_path / "m.mm").predict(X), ranker.predict(X))


def test_a_parameter_younger_than_the_file_has_its_default(tmp_path):
    forged = Forged.of(FOLDER / "multiclass.mm")
    del forged.state["safeguard"]
    assert maxmargin.load(forged.write(tmp_path / "m.mm")).safeguard is True


def test_what_is_no_more_is_left_out_of_an_older_file(tmp_path):
    """Parameters that went, and values that went: the model predicts as before, and can be fitted."""
    forged = Forged.of(FOLDER / "multiclass.mm")
    kept = maxmargin.load(FOLDER / "multiclass.mm")
    gone = {"averaging": True, "truncation": 0.1, "floor": 0.0, "sampling": "uniform", "shrinking": False}
    forged.state.update(gone, solver="pairwise")
    model = maxmargin.load(forged.write(tmp_path / "m.mm"))
    assert model.solver == "auto" and not hasattr(model, "averaging")
    assert model.get_params().keys() == kept.get_params().keys()
    np.testing.assert_array_equal(model.coef_, kept.coef_)
    maxmargin.save(model, tmp_path / "again.mm")


def test_a_tuner_and_a_progress_bar_are_no_obstacle(tmp_path, made):
    tuner = maxmargin.load(made / "tuner")
    assert tuner.predict(X).shape == Y.shape
    from sklearn.callback import ProgressBar

    model = maxmargin.MultiClassSVC().set_callbacks(ProgressBar()).fit(X, Y[:, 0])
    maxmargin.save(model, tmp_path / "m.mm")
    np.testing.assert_array_equal(maxmargin.load(tmp_path / "m.mm").predict(X), model.predict(X))


SAFE = [
    r"(?u)\b\w\w+\b",
    r"\b\w+\b",
    r"\w+",
    r"\S+",
    r"[a-zA-Z]+",
    r"(?u)\b[a-zA-Z]{2,}\b",
    r"#\w+",
    r"[^ ]+",
]
UNSAFE = [r"(a+)+$", r"(?:a|a)*b", r"\w+\d+", r"\w*\w*\w*!", r"[a-z]+\b", r"(\w)\1+", r"(?=a+b)a+", "a" * 200]


def test_patterns_of_tokens_take_linear_time():
    assert [pattern for pattern in SAFE if _pattern(pattern) is not None] == []
    assert [pattern for pattern in UNSAFE if _pattern(pattern) is None] == []


@pytest.mark.parametrize("name", sorted(set(ESTIMATORS) - {"StreamRanker"}))
def test_an_unfitted_estimator_is_a_sound_file(name, tmp_path):
    maxmargin.save(getattr(maxmargin, name)(), tmp_path / "m.mm")
    assert type(maxmargin.load(tmp_path / "m.mm")).__name__ == name


def test_preparing_columns_starts_no_processes(tmp_path):
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = make_pipeline(maxmargin.prepare(frame), maxmargin.MultiLabelSVC()).fit(frame, Y)
    maxmargin.save(model, tmp_path / "m.mm")
    model[0].n_jobs = 2
    with pytest.raises(ModelFileError, match=r"columntransformer'\]\.n_jobs"):
        maxmargin.save(model, tmp_path / "m.mm")
    forged = Forged.of(tmp_path / "m.mm")
    step(0)(forged)["n_jobs"] = 2
    with pytest.raises(ModelFileError, match=r"columntransformer'\]\.n_jobs"):
        maxmargin.load(forged.write(tmp_path / "m.mm"))
