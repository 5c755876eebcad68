"""Every fitted model names the solvers that ran: in its attributes, records, output, file and report."""

import json
import re
from itertools import pairwise

import pytest

import maxmargin
from maxmargin.baselines import ImportVectorMachine, SparseOneVsRest
from maxmargin.cli import main
from maxmargin.cli.models import last_step
from tests.test_every_estimator import CASES, CODES, SMALL, X, build, fit


@pytest.mark.parametrize("name", CASES)
def test_a_default_fit_names_its_solver(name, tmp_path, capsys):
    model = fit(build(name, verbose=1), name)
    assert model.solver_ and {record["solver"] for record in model.history_} == set(
        model.solver_.split(", then ")
    )
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("epoch ")]
    records = model.history_
    assert all(line.endswith(f"  {r['solver']}") for line, r in zip(printed, records, strict=True))
    maxmargin.save(model, tmp_path / "m.mm")
    assert maxmargin.load(tmp_path / "m.mm").solver_ == model.solver_
    assert main(["info", str(tmp_path / "m.mm"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ran"] == model.solver_
    assert main(["info", str(tmp_path / "m.mm")]) == 0
    assert model.solver_ in capsys.readouterr().out


@pytest.mark.parametrize("machine", [SparseOneVsRest, ImportVectorMachine])
def test_the_rivals_of_sparse_machines_name_it_too(machine):
    model = machine(**SMALL, random_state=0).fit(X, CODES)
    assert model.solver_ and all(record["solver"] for record in model.history_)


def test_a_report_names_the_solver(tmp_path):
    file, page = str(tmp_path / "m.mm"), tmp_path / "m.html"
    assert main(["fit", "iris", "-m", "multiclass", "-o", file]) == 0
    assert main(["report", file, "iris", "-o", str(page)]) == 0
    cells = re.findall(r"<t[dh][^>]*>([^<]*)</t", page.read_text())
    values = {value for name, value in pairwise(cells) if name == "solver"}
    assert last_step(maxmargin.load(file)).solver_ in values
