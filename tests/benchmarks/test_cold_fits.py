"""First fits in processes of their own."""

from __future__ import annotations

import csv
import os

import pytest

from benchmarks import cold_fits

TABLE = ("table", "SparseMultiLabelSVC", {"max_basis": 1}, "labels", "600 x 12")


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_the_second_process_finds_what_the_first_compiled(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(cold_fits, "FITS", [TABLE, ("other", *TABLE[1:])])
    monkeypatch.setattr(cold_fits, "RESULTS", tmp_path / "cold_fits.csv")
    cold_fits.main(["table", "--repeats", "1", "--loops"])
    printed = capsys.readouterr().out
    assert "fit=table" in printed and "hinges_expand" in printed and "other" not in printed
    with open(tmp_path / "cold_fits.csv") as file:
        (row,) = csv.DictReader(file)
    assert tuple(row) == cold_fits.COLUMNS and row["fit"] == "table"
    assert float(row["cold_cpu_s"]) > float(row["kept_cpu_s"]) > 0 and int(row["loops"]) >= 2


def test_every_fit_has_a_name_of_its_own():
    assert len({fit[0] for fit in cold_fits.FITS}) == len(cold_fits.FITS)
