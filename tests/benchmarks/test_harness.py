"""The race harness: processes, turns, tolerances, files."""

from __future__ import annotations

import csv
import os
import time
from functools import partial

import numpy as np
import pytest

from benchmarks.race import (
    Competitor,
    Setting,
    loosest,
    present,
    race,
    run_alone,
    save,
)


def test_a_run_is_measured_in_a_process_of_its_own():
    def work():
        block = np.ones(40 << 17)  # 40 MiB
        time.sleep(0.1)
        return os.getpid(), len(os.sched_getaffinity(0)), int(block[0])

    run = run_alone(Competitor("work", work, warm=lambda: time.sleep(0.05)))
    process, cores, one = run.answer
    assert process != os.getpid() and cores == 1 and one == 1
    assert 0.1 <= run.seconds < 5 and 0.05 <= run.warm_seconds < 5
    assert 30 < run.peak_mib < 80 and run.process_mib >= run.before_mib > 0


def test_a_process_that_dies_is_named():
    with pytest.raises(RuntimeError, match="the process of sleepwalker died"):
        run_alone(Competitor("sleepwalker", partial(os._exit, 3)))


def test_competitors_take_turns_and_slow_ones_run_once(tmp_path):
    log = tmp_path / "log"

    def note(name, seconds):
        with log.open("a") as file:
            file.write(name)
        time.sleep(seconds)
        return name

    entrants = [Competitor(name, partial(note, name, seconds)) for name, seconds in (("a", 0), ("b", 0.1))]
    found = race(entrants, 3, too_long=0.05)
    assert log.read_text() == "abaa" and [len(found[name].runs) for name in "ab"] == [3, 1]
    assert (
        found["a"].seconds == sorted(run.seconds for run in found["a"].runs)[1] == found["a"].middle.seconds
    )
    assert found["b"].answer == "b"


def test_absent_peers_are_reported_in_one_line_and_left_out(capsys):
    entrants = [Competitor("ours", int), Competitor("theirs", int, needs=("no_such_module",))]
    assert [each.name for each in present(entrants)] == ["ours"]
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 1 and "theirs" in printed[0] and "no_such_module is not installed" in printed[0]
    assert loosest(lambda tol: entrants[1], (1.0,), bool) is None


def test_the_loosest_tolerance_that_is_good_enough_is_found():
    def competitor(tol):
        return Competitor("search", lambda: tol)

    assert loosest(competitor, (1.0, 0.1, 0.01), lambda answer: answer < 0.5) == (0.1, 0.1)
    assert loosest(competitor, (1.0, 0.1), lambda answer: False) == (0.1, 0.1)


def test_rows_with_the_same_key_give_way_and_others_stay(tmp_path):
    setting = Setting(out=tmp_path)
    save(setting, "t", [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}], ["a"])
    save(setting, "t", [{"a": 2, "b": "z", "c": 0.5}], ["a"])
    with (tmp_path / "t.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["a", "b", "c"], ["1", "x", ""], ["2", "z", "0.5"]]
    save(setting, "t", [{"b": 1}], note="quiet")
    assert (tmp_path / "t.csv").read_text() == "# quiet\nb\n1\n"
    save(Setting(out=None), "nowhere", [{"a": 1}])
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]
