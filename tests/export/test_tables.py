"""Tables with numbers, categories and texts: ONNX models take their columns and answer alike."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from maxmargin import Calibrated, MultiLabelSVC, prepare, to_onnx
from maxmargin.tables import TextColumn

pytest.importorskip("onnx", reason='needs "maxmargin[onnx]"')
runtime = pytest.importorskip("onnxruntime", reason='needs "maxmargin[onnx]"')

RNG = np.random.default_rng(0)
N = 80
THINGS = np.array(
    ["Wool socks", "SILK scarf", "Größe XL", "naïve café", "ÉTÉ 2024", "a b", "wool_mix x-ray ½"]
)
SHOP = pd.DataFrame(
    {
        "price": np.where(RNG.random(N) < 0.2, np.nan, 50 * RNG.random(N)),
        "scores": RNG.normal(size=N),  # called as an output
        "colour": RNG.choice(np.array(["red", "blue", None], dtype=object), N),
        "title": [" ".join(RNG.choice(THINGS, 2)) for _ in range(N)],
    }
)
TAGS = np.column_stack(
    [SHOP["colour"] == "red", SHOP["title"].str.contains("Wool"), SHOP["price"].fillna(0) > 25]
).astype(int)
NEW = pd.DataFrame(
    {
        "price": [np.nan, 3.0, 40.0],
        "scores": [0.0, np.nan, 1.0],
        "colour": ["green", None, "blue"],
        "title": [None, "GRÖSSE größe café wool wool", "?!"],
    }
)


def fed(table, dtype=np.float64):
    """Columns as a runtime takes them."""
    found = {}
    for name in table:
        values = table[name]
        numbers = pd.api.types.is_numeric_dtype(values)
        values = values.to_numpy(dtype) if numbers else values.fillna("").to_numpy(object)
        found[f"column {name}" if name == "scores" else name] = values[:, None]
    return found


def answers(proto, inputs):
    session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    assert {given.name for given in session.get_inputs()} == set(inputs)
    return dict(zip([out.name for out in session.get_outputs()], session.run(None, inputs), strict=True))


@pytest.mark.parametrize("calibrated", [False, True])
def test_a_table_with_all_kinds_of_columns(calibrated):
    pipe = make_pipeline(prepare(SHOP, text=["title"]), MultiLabelSVC(random_state=0))
    model = (Calibrated(pipe, cv=2) if calibrated else pipe).fit(SHOP, TAGS)
    proto = to_onnx(model)
    for table in (SHOP, NEW, NEW.iloc[[0]], pd.concat([SHOP] * 5)):
        found = answers(proto, fed(table))
        np.testing.assert_array_equal(found["labels"], model.predict(table))
        inner = model.estimator_ if calibrated else model
        np.testing.assert_allclose(found["scores"], inner.decision_function(table), atol=1e-9)
        if calibrated:
            np.testing.assert_allclose(found["probabilities"], model.predict_proba(table), atol=1e-9)
    single = answers(to_onnx(model, dtype=np.float32), fed(SHOP, np.float32))
    np.testing.assert_allclose(single["scores"], inner_scores(model, SHOP), atol=1e-4)


def inner_scores(model, table):
    return (model.estimator_ if hasattr(model, "estimator_") else model).decision_function(table)


def test_missing_numbers_are_filled_in():
    X = SHOP[["price", "scores"]].to_numpy()
    model = Calibrated(
        make_pipeline(SimpleImputer(strategy="median"), StandardScaler(), MultiLabelSVC()), cv=2
    )
    model.fit(X, TAGS)
    np.testing.assert_array_equal(answers(to_onnx(model), {"X": X})["labels"], model.predict(X))


def test_columns_that_cannot_be_exported_are_said():
    def fitted(*parts):
        return make_pipeline(ColumnTransformer(list(parts)), MultiLabelSVC(random_state=0)).fit(table, TAGS)

    table = SHOP.assign(size=np.arange(N) % 3)
    with pytest.raises(ValueError, match="analyzer='char_wb' cannot be exported; use words"):
        to_onnx(
            make_pipeline(prepare(SHOP, text=["title"], analyzer="character"), MultiLabelSVC()).fit(
                SHOP, TAGS
            )
        )
    with pytest.raises(ValueError, match="sublinear_tf=True cannot be exported; leave it at its default"):
        to_onnx(fitted(("text", TextColumn(sublinear_tf=True), "title")))
    with pytest.raises(ValueError, match="Column 'size' has categories other than strings"):
        to_onnx(fitted(("kinds", OneHotEncoder(handle_unknown="ignore"), ["size"])))
    with pytest.raises(ValueError, match="drops or merges values"):
        to_onnx(fitted(("kinds", OneHotEncoder(drop="first"), ["colour"])))
