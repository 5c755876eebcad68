"""`maxmargin warmup`."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from maxmargin._names import ESTIMATORS
from maxmargin.cli import main
from maxmargin.cli.warmup import APART, FEW, KEPT, WARMED, fit_a_little, solver_names, variants

# Two epochs call the loops of a solver as well as seventy, which take a minute as plain Python.
SHORT = {"max_iter": 2, "max_basis": 2, "tol": 0.1}


def test_warmup_shares_families_out(capsys):
    assert main(["warmup", "--defaults", "--jobs", "2", "sparse-multilabel", "sparse-multiclass"]) == 0
    assert "Ready: sparse-multiclass, sparse-multilabel" in capsys.readouterr().out


def test_warmup_fits_what_it_is_told(capsys):
    assert main(["warmup", "sparse-multilabel"]) == 0
    assert "Ready: sparse-multilabel" in capsys.readouterr().out
    assert main(["warmup", "spam"]) == 2


def test_warmup_knows_every_estimator():
    """StreamRanker learns through LabelRanker's loops."""
    assert {estimator for estimator, _ in WARMED.values()} == set(ESTIMATORS) - {"StreamRanker"}


@pytest.mark.nojit
# Compiling every solver of chains by itself takes most of a minute.
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name == "chain" else []) for name in WARMED]
)
def test_warmup_fits_every_solver(name):
    estimator, task = WARMED[name]
    solvers = {
        params["solver"]
        for params in variants(estimator)
        if fit_a_little(estimator, task, params, FEW[task][:1], settings=SHORT)
    }
    assert solvers == set(solver_names(estimator)) != set()


@pytest.mark.nojit
def test_the_warmup_of_bags_changes_their_candidates(monkeypatch):
    from maxmargin.structured import latent_rounds

    seen, products = [], latent_rounds.pair_products
    monkeypatch.setattr(latent_rounds, "pair_products", lambda *given: (seen.append(1), products(*given)))
    fit_a_little("LatentSVC", "bags", {}, FEW["bags"], ["float64"], {"max_iter": 15})
    assert seen


def test_the_warmup_of_sparse_machines_meets_margins_that_are_kept(monkeypatch):
    from maxmargin.sparse import loss_loops, problem

    seen, through, pull = set(), loss_loops.star_through, problem.star_pull
    monkeypatch.setattr(loss_loops, "star_through", lambda *given: (seen.add("through"), through(*given)))
    monkeypatch.setattr(problem, "star_pull", lambda *given: (seen.add("pull"), pull(*given)))
    fit_a_little("SparseMultiClassSVC", "multiclass", {}, KEPT["SparseMultiClassSVC"], ["float64"], APART)
    assert seen == {"through", "pull"}


@pytest.mark.nojit
@pytest.mark.parametrize("defaults", [False, True])
def test_blocks_of_labels_and_files_are_warmed_up_unless_defaults_are_asked_for(monkeypatch, defaults):
    from maxmargin.cli import warmup

    fitted = []
    monkeypatch.setattr(warmup, "fit_a_little", lambda _, task, params, *rest: fitted.append(params))
    monkeypatch.setattr(warmup, "fit_from_files", lambda: fitted.append("files"))
    monkeypatch.setattr(warmup, "find_spec", lambda name: name == "distributed")
    warmup.warm("multilabel", defaults)
    assert ({"memory_limit": 0} in fitted) is not defaults
    assert ("files" in fitted) is not defaults


@pytest.mark.nojit
@pytest.mark.parametrize("defaults", [False, True])
def test_batches_of_samples_are_warmed_up_in_the_precisions_that_fits_work_in(monkeypatch, defaults):
    from maxmargin.cli import warmup
    from maxmargin.multilabel import pairs

    seen, carry = set(), pairs.loops.carry
    monkeypatch.setattr(warmup, "fit_a_little", lambda *given: True)
    monkeypatch.setattr(warmup, "fit_from_files", lambda: None)
    called = SimpleNamespace(**vars(pairs.loops))
    called.carry = lambda *given: (seen.add(given[0].dtype.name), carry(*given))
    monkeypatch.setattr(pairs, "loops", called)
    warmup.warm("multilabel", defaults)
    assert seen == ({"float32"} if defaults else {"float32", "float64"})


def test_copies_of_rows_in_files_are_warmed_up_in_both_precisions(monkeypatch):
    pytest.importorskip("dask", reason='needs "maxmargin[dask]"')
    from maxmargin.cli.warmup import fit_from_files
    from maxmargin.dask import streamed

    seen, copy_rows = set(), streamed.copy_rows

    def copy(data, indices, indptr, ids, values, columns):
        seen.add((data.dtype.name, values.dtype.name))
        copy_rows(data, indices, indptr, ids, values, columns)

    monkeypatch.setattr(streamed, "copy_rows", copy)
    fit_from_files()
    assert seen == {("float64", "float32"), ("float64", "float64"), ("float32", "float32")}


# Prints the loops that Python calls by name and that no fit of the warm-up has called: those that were
# called hold code for Python. Device files need torch, and have no such loops.
REACHED = """
import ast, importlib, types
from pathlib import Path

import maxmargin
from maxmargin.cli import warmup
from maxmargin.core.dispatch import Loop

def names(node):
    if isinstance(node, ast.FunctionDef) and any(
        "compiled" in ast.unparse(mark) or ".of(" in ast.unparse(mark) for mark in node.decorator_list
    ):
        return
    if isinstance(node, ast.Name):
        yield None, node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        yield node.value.id, node.attr
    for child in ast.iter_child_nodes(node):
        yield from names(child)

def called_by_python(folder):
    for source in sorted(Path(maxmargin.__file__).parent.joinpath(folder).glob("*.py")):
        if not source.stem.startswith("device"):
            module = importlib.import_module(f"maxmargin.{folder}.{source.stem}")
            for owner, name in names(ast.parse(source.read_text())):
                place = module if owner is None else getattr(module, owner, None)
                loop = vars(place).get(name) if isinstance(place, types.ModuleType) else None
                if isinstance(loop, Loop):
                    yield loop

if __name__ == "__main__":
    warmup.WIDTHS = warmup.WIDTHS[:1]
    for family in warmup.WARMED:
        warmup.warm(family)
    folders = ("core", "multilabel", "structured", "ranking", "sparse", "submodular", "dask")
    loops = {loop for folder in folders for loop in called_by_python(folder)}
    print(len(loops), sorted(loop.py_func.__qualname__ for loop in loops if not loop.overloads))
"""


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_the_warmup_calls_every_loop_that_python_calls():
    done = subprocess.run([sys.executable, "-c", REACHED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    count, missed = done.stdout.split(maxsplit=1)
    assert int(count) > 80 and missed.strip() == "[]"


# What a process needs to compile for the demo, after a warm-up of default fits by another.
DEMO = """
from maxmargin.cli import main
from maxmargin.cli.warmup import SLOWEST_FIRST, warm
from maxmargin.core.compiling import compile_time
import multiprocessing

def compiled():
    with compile_time() as compiling:
        assert main(["demo", "--json"]) == 0
    print("compiled" if compiling.done else "nothing compiled")

if __name__ == "__main__":
    for call, given in [*((warm, (name, True)) for name in SLOWEST_FIRST), (compiled, ())]:
        process = multiprocessing.get_context("spawn").Process(target=call, args=given)
        process.start()
        process.join()
        assert process.exitcode == 0
"""


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_the_demo_finds_all_its_loops_after_the_warmup(tmp_path):
    (tmp_path / "program.py").write_text(DEMO)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "program.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "nothing compiled"


def test_a_fault_is_not_taken_for_a_refusal(monkeypatch):
    import maxmargin

    def fit(self, X, y):
        raise ValueError("the moon is full")

    monkeypatch.setattr(maxmargin.SubmodularSVC, "fit", fit)
    with pytest.raises(ValueError, match="moon"):
        fit_a_little("SubmodularSVC", "multilabel", {"solver": "bcfw"}, FEW["multilabel"])
