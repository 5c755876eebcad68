"""The floor plan: how many files a fit walks, how many arguments a loop takes, where loops live."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "maxmargin"
MOST_FILES = 10
MOST_ARGUMENTS = 10
# Fits of one estimator each, as plain Python, so that the loops are seen too.
FITS = {
    "MultiLabelSVC": ("MultiLabelSVC()", "Y"),
    "MultiClassSVC": ("MultiClassSVC()", "c"),
    "ChainSVC": ("ChainSVC(max_iter=5)", "c, lengths=cut"),
    "LatentSVC": ("LatentSVC(max_iter=5)", "c[:6], lengths=cut"),
    "LabelRanker": ("LabelRanker()", "Y"),
    "SparseMultiClassSVC": ("SparseMultiClassSVC(max_basis=3)", "c"),
    "SparseMultiLabelSVC": ("SparseMultiLabelSVC(max_basis=3)", "Y"),
    "SubmodularSVC": ("SubmodularSVC(tol=0.1)", "Y"),
}
PROGRAM = """
import json, sys, warnings
import numpy as np
import maxmargin
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X = np.abs(rng.normal(size=(12, 3)))
Y = (rng.random((12, 3)) < 0.5).astype(int)
c = np.arange(12) % 3
cut = np.full(6, 2)
model = maxmargin.{model}
seen = set()
sys.setprofile(lambda frame, event, _: event == "call" and seen.add(frame.f_code.co_filename))
model.fit(X, {y})
sys.setprofile(None)
print(json.dumps(sorted(name for name in seen if "/maxmargin/" in name)))
"""


@pytest.mark.parametrize("name", FITS)
def test_a_fit_walks_few_files(name):
    model, y = FITS[name]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(model=model, y=y)],
        capture_output=True,
        text=True,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    files = [Path(name).relative_to(SOURCE.resolve()) for name in json.loads(done.stdout)]
    assert len(files) <= MOST_FILES, [str(file) for file in files]


def compiled_functions():
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and any(
                "compiled" in ast.dump(d) for d in node.decorator_list
            ):
                yield path.relative_to(SOURCE), node


def test_compiled_loops_take_few_arguments():
    sizes = {f"{path}:{node.name}": len(node.args.args) for path, node in compiled_functions()}
    assert not {name: size for name, size in sizes.items() if size > MOST_ARGUMENTS}


def slow_to_compile(function):
    """What a loop says in a word of NumPy that takes numba longer to compile than a loop of its own."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Constant):
            # The error of two slices that do not match takes seconds.
            places = (place for place in node.targets if isinstance(place, ast.Subscript))
            if any(isinstance(part, ast.Slice) for place in places for part in ast.walk(place.slice)):
                yield ast.unparse(node)
        elif isinstance(node, ast.Attribute) and node.attr in ("sort", "argsort"):
            yield ast.unparse(node)


def test_loops_compile_fast():
    slow = {f"{path}:{node.name}": list(slow_to_compile(node)) for path, node in compiled_functions()}
    assert not {name: words for name, words in slow.items() if words}


def sums_while_writing(function):
    """Names that innermost loops of a function sum up while they write into arrays.

    Places to write at, and what is set anew in every round, are no sums.
    """
    for loop in ast.walk(function):
        if not isinstance(loop, ast.For):
            continue
        inside = [node for line in loop.body for node in ast.walk(line)]
        calls = any(isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) for node in inside)
        if calls or any(isinstance(node, ast.For | ast.While) for node in inside):
            continue
        added = [node.target for node in inside if isinstance(node, ast.AugAssign)]
        assigned = [target for node in inside if isinstance(node, ast.Assign) for target in node.targets]
        written = [
            node
            for target in added + assigned
            for node in ast.walk(target)
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
        ]
        others = {
            node.id for place in written for node in ast.walk(place.slice) if isinstance(node, ast.Name)
        }
        others |= {target.id for target in assigned if isinstance(target, ast.Name)}
        if written:
            yield from {target.id for target in added if isinstance(target, ast.Name)} - others


def test_no_sum_depends_on_where_arrays_lie():
    """Where sums may be reordered, a loop that writes, too, runs in lanes or not by where its arrays lie."""
    sums = {
        f"{path}:{node.name}": list(sums_while_writing(node))
        for path, node in compiled_functions()
        if any("reorder=True" in ast.unparse(d) for d in node.decorator_list)
    }
    assert len(sums) > 50 and not {name: found for name, found in sums.items() if found}


def test_the_rule_on_sums_sees_them():
    loop = ast.parse(
        "for k in range(n):\n    x = a[k]\n    x -= 1\n    b[end] = x\n    end += 1\n    total += x"
    )
    assert list(sums_while_writing(loop)) == ["total"]


def test_loops_live_in_core_and_in_files_called_loops():
    elsewhere = {
        str(path) for path, _ in compiled_functions() if path.parts[0] != "core" and "loops" not in path.stem
    }
    assert not elsewhere
