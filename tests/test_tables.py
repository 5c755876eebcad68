"""`maxmargin.prepare`: kinds of columns, missing values, unknown categories, and the model file."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import maxmargin
from maxmargin import metrics
from maxmargin.baselines import ThresholdTuner
from maxmargin.tables import column_kinds, feature_names

TITLES = ["silk scarf", "wool socks", "silk shirt", None, "cotton socks", "wool scarf"] * 5
SHOP = pd.DataFrame(
    {
        "price": [10.0, None, 80.0, 90.0, 15.0, 30.0] * 5,
        "stock": [3, 4, 0, 1, 9, 2] * 5,
        "sold": [True, False] * 15,
        "colour": ["red", "blue", None, "red", "green", "blue"] * 5,
        "title": [t and f"{t} number {chr(97 + k % 26)}{chr(97 + k // 26)}x" for k, t in enumerate(TITLES)],
    }
)
TAGS = [
    {"soft"} if "silk" in (t or "") else {"warm", "plain"} if "wool" in (t or "") else set() for t in TITLES
]
KINDS = {"price": "number", "stock": "number", "sold": "number", "colour": "category", "title": "text"}


def test_kinds_are_inferred_or_named():
    assert column_kinds(SHOP) == column_kinds(pl.from_pandas(SHOP)) == KINDS
    assert column_kinds(SHOP.astype({"colour": "category"}))["colour"] == "category"
    with pytest.warns(FutureWarning, match="told is deprecated; use kinds"):
        assert column_kinds(SHOP, told={"stock": "text"}) == KINDS | {"stock": "text"}
    named = maxmargin.prepare(SHOP, text=["colour"], categories=["stock"], drop=["sold"])
    assert [(name, columns) for name, _, columns in named.transformers] == [
        ("numbers", ["price"]), ("categories", ["stock"]), ("text_0", "colour"), ("text_1", "title"),
    ]  # fmt: skip


@pytest.mark.parametrize("values", [
    pd.to_datetime(["2024-01-03", "2024-02-04"]), ["2024-01-03", "2024-02-04"], ["3.1.2024", "4.2.2024"],
])  # fmt: skip
def test_dates_are_refused_with_what_to_do(values):
    with pytest.raises(ValueError, match=r"Column 'day' holds dates .*--dates day .* leaves it out"):
        maxmargin.prepare(pd.DataFrame({"day": values, "n": [1, 2]}))
    assert column_kinds(pd.DataFrame({"day": values, "n": [1, 2]}), drop=["day"]) == {"n": "number"}


def test_what_cannot_be_prepared_is_named():
    with pytest.raises(ValueError, match=r"Column 'tags' holds \['a'\], a list"):
        maxmargin.prepare(pd.DataFrame({"tags": [["a"], ["b"]]}))
    with pytest.raises(ValueError, match="No column is called 'titel'; there are 'price'"):
        maxmargin.prepare(SHOP, text=["titel"])
    with pytest.raises(ValueError, match="'title' is named as a category and a text"):
        maxmargin.prepare(SHOP, text=["title"], categories=["title"])
    with pytest.raises(TypeError, match=r"must be a list of names, such as \['title'\]"):
        maxmargin.prepare(SHOP, text="title")
    with pytest.raises(TypeError, match=r"must be a data frame .* Got a ndarray"):
        maxmargin.prepare(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="analyzer must be 'word' or 'character'"):
        maxmargin.prepare(SHOP, analyzer="char")
    with pytest.raises(ValueError, match="No column is left"):
        maxmargin.prepare(SHOP, drop=list(SHOP.columns))


@pytest.mark.parametrize("frame", [SHOP, pl.from_pandas(SHOP)], ids=["pandas", "polars"])
def test_missing_values_and_new_categories_have_a_rule(frame):
    prepared = maxmargin.prepare(frame)
    Z = prepared.fit_transform(frame)
    Z = Z.toarray() if hasattr(Z, "toarray") else Z
    names = feature_names(prepared, list(SHOP.columns))
    assert Z.shape == (30, len(names)) and np.isfinite(Z).all()
    column = {name: Z[:, j] for j, name in enumerate(names)}
    assert column[f"price (per {Z_SCALE:.3g})"][1] == pytest.approx(
        (30.0 - np.nanmean([10, 30, 80, 90, 15, 30])) / Z_SCALE
    )
    np.testing.assert_array_equal(column["colour=red"], SHOP["colour"] == "red")
    np.testing.assert_array_equal(column["colour=(missing)"], SHOP["colour"].isna())
    assert not column["title: silk"][3] and column["title: silk"][0] > 0
    new = frame[:1].assign(colour="pink") if frame is SHOP else frame[:1].with_columns(colour=pl.lit("pink"))
    row = prepared.transform(new)
    row = row.toarray() if hasattr(row, "toarray") else row
    assert not any(row[0, j] for j, name in enumerate(names) if name.startswith("colour="))


Z_SCALE = np.std([10, 30, 80, 90, 15, 30])


def test_characters_see_through_a_misspelling():
    frame = pd.DataFrame({"word": [f"{word}{k}" for k in range(4) for word in ("footwear", "silken")]})
    y = ["shoes", "cloth"] * 4
    model = make_pipeline(maxmargin.prepare(frame, analyzer="character"), maxmargin.MultiClassSVC()).fit(
        frame, y
    )
    assert model.predict(pd.DataFrame({"word": ["fotwear", "silkn"]})).tolist() == ["shoes", "cloth"]


def usual(model):
    """Preparation as scikit-learn's own pages have it."""
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    parts = [("n", numbers, ["price", "stock"]), ("c", OneHotEncoder(handle_unknown="ignore"), ["colour"])]
    return make_pipeline(ColumnTransformer(parts), model)


def texts(model):
    return make_pipeline(ColumnTransformer([("t", TfidfVectorizer(), "title")]), model)


PIPELINES = {
    "prepared": lambda: make_pipeline(maxmargin.prepare(SHOP), maxmargin.MultiLabelSVC(random_state=0)),
    "characters": lambda: make_pipeline(
        maxmargin.prepare(SHOP, analyzer="character"), maxmargin.MultiLabelSVC(random_state=0)
    ),
    "usual": lambda: usual(maxmargin.MultiLabelSVC(random_state=0)),
    "texts": lambda: texts(maxmargin.LabelRanker(random_state=0)),
    "tuner outside": lambda: ThresholdTuner(usual(maxmargin.MultiLabelSVC(random_state=0)), cv=3),
    "tuner inside": lambda: usual(ThresholdTuner(maxmargin.MultiLabelSVC(random_state=0), cv=3)),
}


@pytest.mark.parametrize(
    ("name", "wrap"), [*((name, pd.DataFrame) for name in PIPELINES), ("prepared", pl.from_pandas)]
)
def test_a_prepared_model_is_saved_whole(name, wrap, tmp_path):
    frame = wrap(SHOP.fillna({"title": ""}) if name == "texts" else SHOP)
    model = PIPELINES[name]().fit(frame, TAGS)
    maxmargin.save(model, tmp_path / "m.mm")
    again = maxmargin.load(tmp_path / "m.mm")
    assert again.predict(frame) == model.predict(frame)
    np.testing.assert_array_equal(again.decision_function(frame), model.decision_function(frame))
    maxmargin.save(again, tmp_path / "again.mm")
    assert (tmp_path / "again.mm").read_bytes() == (tmp_path / "m.mm").read_bytes()
    assert again.fit(frame, TAGS).predict(frame) == model.predict(frame)


def test_the_best_of_a_search_is_saved_and_the_search_says_so(tmp_path):
    pipe = PIPELINES["tuner inside"]()
    grid = {"thresholdtuner__estimator__C": [0.1, 1.0]}
    search = GridSearchCV(pipe, grid, scoring=metrics.scorer("f1_micro"), cv=KFold(2)).fit(SHOP, TAGS)
    assert np.isfinite(search.best_score_)
    with pytest.raises(ValueError, match="not a GridSearchCV; save its best_estimator_"):
        maxmargin.save(search, tmp_path / "m.mm")
    maxmargin.save(search.best_estimator_, tmp_path / "m.mm")
    assert maxmargin.load(tmp_path / "m.mm").predict(SHOP) == search.predict(SHOP)


@pytest.mark.parametrize(("spoil", "said"), [
    (lambda c: c.set_params(remainder="passthrough"), "remainder"),
    (lambda c: vars(c.transformers_[0][1][0]).update(statistics_=np.array([np.nan, 1])), "keep_empty"),
    (lambda c: setattr(c.transformers_[1][1], "_n_features_outs", [7]), "widths"),
    (lambda c: setattr(c.transformers_[1][1], "categories_", [np.array(["a", "a"], object)]), "twice"),
    (lambda c: c.transformers_.__setitem__(1, ("c", c.transformers_[1][1], ["stock"])), "differ from"),
    (lambda c: setattr(c, "n_features_in_", 2**40), "n_features"),
    (lambda c: c.set_params(transformers=[("n", StandardScaler(), slice(0, 2))]), "slices"),
    (lambda c: c.set_params(n__simpleimputer__add_indicator=True), "add_indicator"),
])  # fmt: skip
def test_a_preparation_that_does_not_fit_together_is_refused(spoil, said, tmp_path):
    model = PIPELINES["usual"]().fit(SHOP, TAGS)
    spoil(model.steps[0][1])
    with pytest.raises(ValueError, match=said):
        maxmargin.save(model, tmp_path / "m.mm")
