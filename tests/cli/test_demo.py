"""`maxmargin demo`."""

from __future__ import annotations

import json

import pytest

from maxmargin.cli import main
from maxmargin.cli.showcase import TASKS, Entrant, Outcome, Task, lesson, new_categories, size, timed
from maxmargin.cli.showcase_data import digits, numbers, titles

# All but the text, whose baseline alone takes seconds.
QUICK = [task for task in TASKS if task.load is not titles]


def test_the_demo_judges_all_who_take_part(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("maxmargin.cli.demo.TASKS", QUICK)
    assert main(["demo"]) == 0
    said = capsys.readouterr()
    for task in QUICK:
        assert task.title in said.out and all(entrant.shown in said.out for entrant in task.entrants)
    assert "maxmargin fit table.csv" in said.out and "maxmargin-demo/report.html" in said.err
    page = (tmp_path / "maxmargin-demo" / "report.html").read_text("utf-8")
    assert all(task.title in page for task in QUICK)


def test_the_demo_speaks_json(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stream = [task for task in TASKS if task.stream]
    monkeypatch.setattr("maxmargin.cli.demo.TASKS", stream)
    assert main(["demo", "--json"]) == 0
    mine, other = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert mine["ours"] and not other["ours"] and mine["score"] > other["score"] > 0.7
    assert mine["KB"] > 0 and mine["predict s"] > 0


@pytest.mark.slow
def test_every_task_is_one_for_which_the_model_is_made():
    """Beside the first baseline a model is as good, or it is much smaller."""
    for task in TASKS:
        train, test = task.load()
        mine, other = (
            task.run(entrant.build(**entrant.params), train, test) for entrant in task.entrants[:2]
        )
        assert mine.score > other.score - 0.005 or mine.kilobytes < other.kilobytes / 3, task.title


@pytest.mark.slow
def test_the_parameters_of_the_demo_are_those_that_the_training_part_chooses():
    from experiments.demo_parameters import choose

    for task in QUICK:
        for entrant in task.entrants:
            assert choose(task, entrant)[0] == entrant.params, (task.title, entrant.name)


@pytest.mark.parametrize(
    ("scores", "seconds", "said"),
    [
        ((0.9, 0.9), (1.0, 14.0), "14 times faster"),
        ((0.9, 0.95), (3.0, 1.0), "other is ahead by 0.050. 3 times slower"),
        ((0.9, 0.8), (1.0, 1.1), "as fast"),
    ],
)
def test_the_lesson_says_what_was_measured(scores, seconds, said):
    entrants = tuple(Entrant(name, dict, {}) for name in ("mine", "other"))
    task = Task("title", "data", "measure", "{fit}", digits, entrants)
    outcomes = [Outcome(None, score, time, time) for score, time in zip(scores, seconds, strict=True)]
    assert lesson(task, outcomes) == said


def test_a_call_that_compiles_is_not_counted(monkeypatch):
    """The clock is read before and after each call, of which the first takes seconds."""
    readings = iter([0, 9, 10, 11])
    monkeypatch.setattr("maxmargin.cli.showcase.time.perf_counter", lambda: next(readings))
    calls = []
    assert timed(lambda: calls.append(1)) == (None, 1) and len(calls) == 2
    readings = iter([0, 9, 10, 10.01, 11, 11.02])
    assert timed(lambda: calls.append(1))[1] == pytest.approx(0.01) and len(calls) == 5


def test_size_counts_what_predicts():
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.svm import SVC, LinearSVC

    train, _ = digits()
    linear = LinearSVC(max_iter=10).fit(train.X, train.y)
    assert size(linear) == 8 * 10 * (64 + 1)
    assert size(OneVsRestClassifier(LinearSVC(max_iter=10)).fit(train.X, train.y)) == size(linear)
    kernel = SVC().fit(train.X, train.y)
    assert size(kernel) == 8 * (len(kernel.support_) * (64 + 9) + 45)


def test_unseen_numbers_are_not_among_the_training_numbers():
    train, test = numbers()
    seen, unseen = (set(map(tuple, part.y.tolist())) for part in (train, test))
    assert not seen & unseen and len(unseen) == 10
    for known, held_out in new_categories(train):
        assert not set(map(tuple, known.y.tolist())) & set(map(tuple, held_out.y.tolist()))
