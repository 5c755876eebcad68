"""Model files of earlier versions load and give the same predictions.

`expected.json` holds the samples and the predictions of each model at the time of saving.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import maxmargin

FOLDER = Path(__file__).parents[1] / "fixtures" / "models"
EXPECTED = json.loads((FOLDER / "expected.json").read_text("utf-8"))
X = np.array(EXPECTED["X"])
GROUPED = {"lengths": EXPECTED["lengths"]}


def question(model):
    """Return the samples and options for the predictions of a model."""
    if type(model).__name__ in ("ChainSVC", "LatentSVC"):
        return X, GROUPED
    return (np.abs(X) if type(model).__name__ == "LabelRanker" else X), {}


def plain(answers):
    """Answers as JSON has them: sets sorted, arrays and frames as lists."""
    if isinstance(answers, pd.DataFrame):
        return answers.to_numpy().tolist()
    if isinstance(answers, np.ndarray) and answers.dtype != object:
        return answers.tolist()
    return [sorted(answer) if isinstance(answer, (set, frozenset)) else answer for answer in answers]


def test_every_file_is_expected():
    assert {path.stem for path in FOLDER.glob("*.mm")} == set(EXPECTED["models"])


@pytest.mark.parametrize("name", EXPECTED["models"])
def test_a_file_of_the_version_before_answers_as_then(name):
    then = EXPECTED["models"][name]
    model = maxmargin.load(FOLDER / f"{name}.mm")
    assert type(model).__name__ == then["class"]
    if name == "stream":
        samples = [{f"f{j}": abs(value) for j, value in enumerate(row)} for row in X.tolist()]
        assert [model.predict_one(sample) for sample in samples] == then["predictions"]
        return
    samples, options = question(model)
    assert plain(model.predict(samples, **options)) == then["predictions"]
    if then["scores"] is not None:
        scores = model.decision_function(samples, **options)
        np.testing.assert_allclose(scores, then["scores"], rtol=1e-12, atol=1e-12)


def test_the_dual_solution_of_an_old_file_is_left_behind(tmp_path):
    old = FOLDER / "multilabel-indicator.mm"
    assert b"_warm" in old.read_bytes()
    model = maxmargin.load(old)
    assert model.warm_start and not hasattr(model, "_warm")
    then = EXPECTED["models"]["multilabel-indicator"]
    model.fit(X, then["predictions"])
    maxmargin.save(model, tmp_path / "m.mm")
    assert b"_warm" not in (tmp_path / "m.mm").read_bytes()
    np.testing.assert_array_equal(maxmargin.load(tmp_path / "m.mm").predict(X), model.predict(X))
