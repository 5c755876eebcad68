"""`maxmargin demo`."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from experiments.demo_parameters import choose, new_categories
from maxmargin.cli import main
from maxmargin.cli.demo import (
    TASKS,
    Entrant,
    Outcome,
    Task,
    accuracy,
    digits,
    lesson,
    numbers,
    size,
    timed,
    titles,
)

# All tasks but the text, whose baseline takes seconds.
QUICK = [task for task in TASKS if task.load is not titles]


def few(split):
    """A split with a few samples of each part."""
    train, test = split
    return train.take(range(min(len(train), 120))), test.take(range(min(len(test), 60)))


def test_the_demo_prints_and_writes_every_task(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tasks = [replace(task, load=lambda load=task.load: few(load())) for task in QUICK]
    monkeypatch.setattr("maxmargin.cli.demo.TASKS", tasks)
    assert main(["demo"]) == 0
    printed = capsys.readouterr()
    for task in tasks:
        assert task.title in printed.out and all(entrant.shown in printed.out for entrant in task.entrants)
    assert "maxmargin fit table.csv" in printed.out and "maxmargin-demo/report.html" in printed.err
    page = (tmp_path / "maxmargin-demo" / "report.html").read_text("utf-8")
    assert all(task.title in page for task in tasks)


def test_the_demo_as_json(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("maxmargin.cli.demo.TASKS", [task for task in TASKS if task.stream])
    assert main(["demo", "--json"]) == 0
    ours, other = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert ours["ours"] and not other["ours"] and ours["score"] > other["score"] > 0.7
    assert ours["KB"] > 0 and ours["predict s"] > 0


@pytest.mark.slow
def test_our_model_is_as_good_or_much_smaller_on_every_task():
    for task in TASKS:
        train, test = task.load()
        ours, other = (
            task.run(entrant.build(**entrant.params), train, test) for entrant in task.entrants[:2]
        )
        assert ours.score > other.score - 0.005 or ours.kilobytes < other.kilobytes / 3, task.title


@pytest.mark.slow
def test_the_parameters_are_those_chosen_on_the_training_part():
    for task in QUICK:
        for entrant in task.entrants:
            assert choose(task, entrant)[0] == entrant.params, (task.title, entrant.name)


@pytest.mark.parametrize(
    ("scores", "seconds", "words"),
    [
        ((0.9, 0.9), (1.0, 14.0), "14 times faster"),
        ((0.9, 0.95), (3.0, 1.0), "other is ahead by 0.050. 3 times slower"),
        ((0.9, 0.8), (1.0, 1.1), "as fast"),
    ],
)
def test_the_conclusion_holds_the_measured_ratios(scores, seconds, words):
    entrants = tuple(Entrant(name, dict, {}) for name in ("ours", "other"))
    task = Task("title", "data", "measure", "{fit}", digits, entrants, accuracy)
    outcomes = [Outcome(None, score, time, time) for score, time in zip(scores, seconds, strict=True)]
    assert lesson(task, outcomes) == words


def test_compilation_is_not_timed(monkeypatch):
    """The clock is read before and after each call, of which the first takes seconds."""
    readings = iter([0, 9, 10, 11])
    monkeypatch.setattr("maxmargin.cli.demo.time.perf_counter", lambda: next(readings))
    calls = []
    assert timed(lambda: calls.append(1)) == (None, 1) and len(calls) == 2
    readings = iter([0, 9, 10, 10.01, 11, 11.02])
    assert timed(lambda: calls.append(1))[1] == pytest.approx(0.01) and len(calls) == 5


def test_size_counts_the_arrays_that_predict():
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.svm import SVC, LinearSVC

    train, _ = digits()
    linear = LinearSVC(tol=1).fit(train.X, train.y)
    assert size(linear) == 8 * 10 * (64 + 1)
    assert size(OneVsRestClassifier(LinearSVC(tol=1)).fit(train.X, train.y)) == size(linear)
    kernel = SVC().fit(train.X, train.y)
    assert size(kernel) == 8 * (len(kernel.support_) * (64 + 9) + 45)


def test_test_numbers_do_not_occur_in_training():
    train, test = numbers()
    seen, unseen = (set(map(tuple, part.y.tolist())) for part in (train, test))
    assert not seen & unseen and len(unseen) == 10
    for known, held_out in new_categories(train):
        assert not set(map(tuple, known.y.tolist())) & set(map(tuple, held_out.y.tolist()))
