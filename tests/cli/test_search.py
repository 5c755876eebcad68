"""`fit --C auto`, several values of C, and `fit --cv`: cross-validation on the training data."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import f1_score

import maxmargin
from maxmargin import datasets
from maxmargin.cli.measures import _multilabel
from maxmargin.cli.models import bare, last_step
from maxmargin.model_selection import IterativeStratifiedKFold


def chosen_c(path="m.mm"):
    return last_step(bare(maxmargin.load(path))).C


def test_the_best_c_is_chosen_in_folds_of_the_training_data(run):
    words = ["fit", "flags", "--scale", "standard", "--max-iter", 200, "-o", "m.mm"]
    code, out, err = run(*words, "--C", 0.0001, "--C", 0.1, "--cv", 3, "--json")
    assert code == 0, err
    data = datasets.load("flags", split="train")
    means = {}
    for C in (0.0001, 0.1):
        model = clone(maxmargin.load("m.mm"))
        model.steps[-1][1].set_params(C=C)
        folds = IterativeStratifiedKFold(3, shuffle=True, random_state=0).split(data.X, data.Y)
        means[C] = np.mean([
            f1_score(data.Y[test], clone(model).fit(data.X[train], data.Y[train]).predict(data.X[test]),
                     average="micro", zero_division=0)
            for train, test in folds
        ])  # fmt: skip
    found, best = json.loads(out), max(means, key=means.get)
    assert abs(means[0.1] - means[0.0001]) > 0.02
    assert found["C"] == best == chosen_c() and found["folds"] == 3
    assert found["micro F1"] == pytest.approx(means[best], abs=0.01)
    assert run(*words, "--C", "0.0001,0.1", "--cv", 3, "--json")[1].count(f'"C": {best}') == 1


def test_auto_prints_the_expected_time_and_the_measures(run):
    code, _, err = run("fit", "iris", "--C", "auto", "-o", "m.mm")
    assert code == 0, err
    assert "3-fold cross-validation, C among 0.01, 0.1, 1, 10: 13 fits." in err
    assert "All fits will take about " in err and f"C {chosen_c():g} has the best accuracy" in err
    assert "(best constant prediction 0.3" in err and "Next: maxmargin predict m.mm NEW_DATA." in err
    _, _, err = run("fit", "iris", "--C", "auto", "-o", "m.mm", "-q")
    assert "fits" not in err and "Next" not in err
    assert [line.split()[0] for line in err.splitlines()] == ["C", "3-fold", "model"]


def test_cross_validation_of_a_single_c(run):
    code, _, err = run("fit", "iris", "--C", "5", "--cv", "4", "-o", "m.mm")
    assert code == 0 and chosen_c() == 5 and "4-fold cross-validation: 5 fits." in err
    assert "4-fold cross-validation: accuracy 0.9" in err and "has the best" not in err
    _, _, err = run("fit", "iris", "-o", "m.mm")
    assert "cross-validation" not in err and "maxmargin evaluate m.mm TEST_DATA, or fit --cv 3." in err


@pytest.mark.parametrize("options", [["--probabilities", "sigmoid"], ["--recall", "0.8"]])
def test_the_wrapped_model_is_measured(run, options):
    code, out, err = run("fit", "flags", "--C", "0.001,0.1", "--cv", 2, *options, "-o", "m.mm", "--json")
    assert code == 0, err
    assert chosen_c() == json.loads(out)["C"]


def test_texts_are_vectorised_in_each_fold(run, tmp_path, monkeypatch):
    """No word of a test part is known to the preprocessing of its fold."""
    (tmp_path / "t.csv").write_text(
        "t,y\n" + "".join(f"{'ab'[i % 2]}x word{i},{'ab'[i % 2]}\n" for i in range(30))
    )
    sizes, fit = [], TfidfVectorizer.fit_transform
    monkeypatch.setattr(
        TfidfVectorizer, "fit_transform", lambda self, X, y=None: sizes.append(len(X)) or fit(self, X, y)
    )
    assert run("fit", "t.csv", "--target", "y", "--C", "1,10", "-o", "m.mm")[0] == 0
    assert sizes == [20, 20, 20, 30]


@pytest.mark.parametrize(("words", "message"), [
    (["--C", "auto", "--C", "1"], "--C must be numbers, or auto alone"),
    (["--C", "1,x"], "--C must be numbers, or auto alone"),
    (["--C", "1", "--C", "-1"], "The 'C' parameter of MultiClassSVC must be"),
    (["--C", "auto", "--prior", "learned", "-m", "multilabel"], "--prior learned needs one value of --C"),
    (["--C", "auto", "--cluster", "local"], "do not work on clusters"),
    (["--cv", "1"], "--cv"),
])  # fmt: skip
def test_mistakes_are_reported_before_the_file_is_read(run, words, message):
    code, _, err = run("fit", "none.csv", "--target", "y", *words, "-o", "m.mm")
    assert code == 2 and message in err, err


def test_compare_chooses_among_the_values_given(run):
    words = ["compare", "iris", "--no-baseline", "--folds", "2", "--json"]
    code, out, err = run(*words, "--C", "2", "--C", "3")
    assert code == 0, err
    assert set(json.loads(out)["C"].split(", ")) <= {"2", "3"}
    code, _, err = run(*words, "--C", "2", "--C", "3", "--no-tune")
    assert code == 2 and "give one" in err


def test_the_same_command_gives_the_same_model(run):
    for name in ("a.mm", "b.mm"):
        assert run("fit", "flags", "--scale", "none", "--max-iter", 3, "-o", name)[0] == 0
    np.testing.assert_allclose(maxmargin.load("a.mm").coef_, maxmargin.load("b.mm").coef_)


def test_unknown_label_entries_are_not_measured(run, tmp_path):
    rows = [f"{i % 5},{i % 3},{int(i % 5 > 2) if i % 7 else ''},{int(i % 3 > 1)}" for i in range(60)]
    (tmp_path / "t.csv").write_text("a,b,x,y\n" + "\n".join(rows) + "\n")
    how = ["--labels", "x,y", "--kernel", "rbf"]
    code, out, err = run("fit", "t.csv", *how, "--C", "1,100", "-o", "m.mm", "--json")
    assert code == 0 and "RuntimeWarning" not in err, err
    found = json.loads(out)
    assert found["C"] == chosen_c() and found["micro F1"] == 1 and found["Hamming loss"] == 0
    full = [f"{a},{b},{x or 1},{y}" for a, b, x, y in (row.split(",") for row in rows)]
    (tmp_path / "wrong.csv").write_text("a,b,x,y\n" + "\n".join(full) + "\n")
    assert json.loads(run("evaluate", "m.mm", "t.csv", "--json")[1])["exact match"] == 1
    assert json.loads(run("evaluate", "m.mm", "wrong.csv", "--json")[1])["exact match"] < 1
    for words in (["compare", "--no-tune", "--folds", 2, *how[:2]], ["report", "m.mm", "--train", "t.csv"]):
        code, _, err = run(*words, "t.csv")
        assert code == 0 and "scikit-learn's models need all of them and are left out" in err, err


def test_samples_without_a_known_label_are_no_exact_matches():
    truth = np.array([[1, 0], [0, 1], [np.nan, np.nan]])
    found = _multilabel(truth, np.array([[1, 0], [1, 0], [1, 1]]))
    assert found["exact match"] == 0.5 and found["Hamming loss"] == 0.5
