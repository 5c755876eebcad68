"""`maxmargin demo` and `maxmargin warmup`."""

from __future__ import annotations

import pytest

from maxmargin.cli import main
from maxmargin.cli._demo import run
from maxmargin.cli._families import FAMILIES
from maxmargin.cli._measures import MEASURES


def test_demo_prints_a_row_for_every_family(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["demo"]) == 0
    said = capsys.readouterr().out
    for family in FAMILIES.values():
        assert f" {family.name} " in said


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_demo_models_are_worth_showing(family):
    ours, base = run(family)
    headline, more_is_better = next(iter(MEASURES[family.task].items()))
    assert set(ours.measures) == set(MEASURES[family.task])
    lead = ours.measures[headline] - base.measures[headline]
    assert (lead if more_is_better else -lead) > -0.02


def test_warmup_fits_what_it_is_told(capsys):
    assert main(["warmup", "multilabel"]) == 0
    assert "Ready: multilabel" in capsys.readouterr().out
    assert main(["warmup", "spam"]) == 2
