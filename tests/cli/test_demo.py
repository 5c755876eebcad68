"""`maxmargin demo`."""

from __future__ import annotations

import json

from maxmargin.cli import main
from maxmargin.cli.families import FAMILIES
from maxmargin.cli.models import MEASURES


def test_demo_shows_every_family_near_or_above_its_baseline(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["family"] for row in rows] == list(FAMILIES)
    for row in rows:
        more_is_better = MEASURES[FAMILIES[row["family"]].task][row["measure"]]
        lead = row["maxmargin"] - row["scikit-learn"]
        assert (lead if more_is_better else -lead) > -0.05, row
