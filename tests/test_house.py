"""The structure of the package: files that a fit passes through, and rules for compiled loops."""

import ast
import builtins
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "maxmargin"
MOST_FILES = 9
MOST_ARGUMENTS = 10
# Decorators of loops in `core.jit`: an entry, a helper, or the body of a generic helper for a class.
LOOPS = ("compiled", "helper", "body")
KINDS = (*LOOPS, "generic", "lowered")
# Files of every path: the modules that all others use, and the check of sparse matrices.
SHARED = {
    "core/jit.py",
    "core/lanes.py",
    "core/loop.py",
    "core/rows.py",
    "core/threads.py",
    "core/sparse_format.py",
}
# The default paths, and the solver that runs there, as plain Python, so that their files are counted, too.
PATHS = {
    "text": ("MultiLabelSVC(max_iter=2).fit(text, Y)", "sweeps"),
    "prior": ("MultiLabelSVC(prior=maxmargin.priors.from_labels, max_iter=2).fit(text, Y)", "sweeps"),
    "table": ("MultiLabelSVC().fit(table, Y)", "newton"),
    "kernel": ("MultiLabelSVC(kernel='rbf', max_iter=2).fit(table, Y)", "kernel-sweeps"),
    "blocks": ("MultiLabelSVC(memory_limit=0, max_iter=2).fit(text, Y)", "label-blocks"),
    "classes": ("MultiClassSVC(max_iter=2).fit(text, c)", "exact"),
    "table of classes": ("MultiClassSVC().fit(table, c)", "newton"),
    "kernel of classes": ("MultiClassSVC(kernel='rbf', max_iter=2).fit(table, c)", "working-sets"),
    "chains": ("ChainSVC(max_iter=2).fit(table, c, lengths=cut)", "pairwise"),
    "bags": ("LatentSVC(max_iter=2).fit(table, c[: len(cut)], lengths=cut)", "pairwise"),
    "sparse": ("SparseMultiClassSVC(max_basis=3).fit(table, c)", "cholesky"),
    "submodular": ("SubmodularSVC(max_iter=2).fit(text[:40], Y[:40])", "bcfw"),
    "ranker": ("LabelRanker(max_iter=1).fit(text, Y)", "water-filling"),
    "stream": ("LabelRanker().partial_fit(text, Y, classes=np.arange(4))", ""),
}
PROGRAM = """
import json, sys, warnings
import numpy as np
import scipy.sparse as sp
import maxmargin
from maxmargin import *
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
n = 320
text = sp.random_array((n, 700), density=0.02, format="csr", rng=rng)
table = np.abs(rng.normal(size=(n, 3)))
Y = (rng.random((n, 4)) < 0.4).astype(int)
c = np.arange(n) % 3
cut = np.full(n // 5, 5)
called = set()
sys.setprofile(lambda frame, event, _: event == "call" and called.add(frame.f_code.co_filename))
for call in json.loads(sys.argv[1]):
    model = eval(call)
    names = sorted(name for name in called if "/maxmargin/" in name)
    print(json.dumps([getattr(model, "solver_", ""), names]))
    called.clear()
"""


@pytest.fixture(scope="module")
def walked():
    """Of each path: what ran, and the files with functions that were called."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([call for call, _ in PATHS.values()])],
        capture_output=True,
        text=True,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(PATHS, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("path", PATHS)
def test_a_default_path_walks_few_files(path, walked):
    solver, (ran, names) = PATHS[path][1], walked[path]
    files = {Path(name).relative_to(SOURCE.resolve()).as_posix() for name in names} - SHARED
    assert ran == solver
    assert len(files) <= MOST_FILES, sorted(files)


# Every file of the package and its tree.
TREES = {
    path.relative_to(SOURCE): ast.parse(path.read_text("utf-8")) for path in sorted(SOURCE.rglob("*.py"))
}


def compiled_functions(*kinds):
    for path, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and kind_of(node)[0] in kinds:
                yield path, node


def test_compiled_loops_take_few_arguments():
    sizes = {f"{path}:{node.name}": len(node.args.args) for path, node in compiled_functions("compiled")}
    assert not {name: size for name, size in sizes.items() if size > MOST_ARGUMENTS}


def slow_to_compile(function):
    """NumPy expressions of a loop that take numba longer to compile than a loop of their own."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Constant):
            # The error of two slices that do not match takes seconds.
            places = (place for place in node.targets if isinstance(place, ast.Subscript))
            if any(isinstance(part, ast.Slice) for place in places for part in ast.walk(place.slice)):
                yield ast.unparse(node)
        elif isinstance(node, ast.Attribute) and node.attr in ("sort", "argsort"):
            yield ast.unparse(node)


def test_loops_compile_fast():
    slow = {f"{path}:{node.name}": list(slow_to_compile(node)) for path, node in compiled_functions(*LOOPS)}
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
        for path, node in compiled_functions(*LOOPS)
        if any("reorder=True" in ast.unparse(d) for d in node.decorator_list)
    }
    assert len(sums) > 50 and not {name: found for name, found in sums.items() if found}


def test_the_rule_on_sums_finds_them():
    loop = ast.parse(
        "for k in range(n):\n    x = a[k]\n    x -= 1\n    b[end] = x\n    end += 1\n    total += x"
    )
    assert list(sums_while_writing(loop)) == ["total"]


def test_loops_live_in_core_and_in_files_called_loops():
    elsewhere = {
        str(path)
        for path, _ in compiled_functions(*LOOPS)
        if path.parts[0] != "core" and "loops" not in path.stem
    }
    assert not elsewhere


# The parts of numba and llvmlite that their manuals document.
DOCUMENTED = {
    "numba.types", "numba.extending", "numba.core.cgutils", "llvmlite.ir",
    # Decorators and settings, and what is raised.
    "numba.njit", "numba.typeof", "numba.config", "numba.errors",
}  # fmt: skip
MAKERS = {
    "arange", "array", "concatenate", "copy", "empty", "empty_like", "full", "full_like", "linspace", "ones",
    "ones_like", "repeat", "tile", "zeros", "zeros_like",
}  # fmt: skip


def sources():
    """Every file of the package: the name of its module and its tree."""
    for path, tree in TREES.items():
        parts = path.with_suffix("").parts
        yield ".".join(["maxmargin", *(part for part in parts if part != "__init__")]), tree


def imported(tree):
    """What each imported name of a file stands for, in full."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return names


def dotted(node):
    """The words of ``a.b.c``; nothing for other expressions."""
    words = []
    while isinstance(node, ast.Attribute):
        words.append(node.attr)
        node = node.value
    return [*reversed([*words, node.id])] if isinstance(node, ast.Name) else []


def in_full(node, names):
    """The full name of an expression of words, by the imports of its file."""
    first, *rest = dotted(node) or [""]
    return ".".join([names.get(first, first), *rest])


def undocumented(tree):
    """Names of numba and llvmlite in a file that are not documented."""
    names = imported(tree)
    used = set(names.values()) | {
        in_full(node, names) for node in ast.walk(tree) if isinstance(node, ast.Attribute)
    }
    for name in sorted(used):
        words = name.split(".")
        # A name within a documented module counts as such.
        parents = {".".join(words[:k]) for k in range(2, len(words) + 1)}
        if words[0] in ("numba", "llvmlite") and parents and not parents & DOCUMENTED:
            yield name


def patched(tree):
    """Attributes of other packages that a file sets."""
    names = {name for name, full in imported(tree).items() if not full.startswith("maxmargin")}
    for node in ast.walk(tree):
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr":
            targets = [ast.Attribute(node.args[0], "")]
        elif not isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete):
            continue
        for target in targets:
            if isinstance(target, ast.Attribute) and dotted(target)[:1] and dotted(target)[0] in names:
                yield ast.unparse(node)


def test_only_documented_parts_of_numba_are_used():
    assert not {name: found for name, tree in sources() if (found := list(undocumented(tree)))}


def test_no_attribute_of_another_package_is_set():
    assert not {name: found for name, tree in sources() if (found := list(patched(tree)))}


def test_the_rules_on_numba_find_violations():
    private = (
        "import numba\nfrom numba.core import compiler, cgutils\nimport numba.core.event as e\nnumba.typed.X"
    )
    assert list(undocumented(ast.parse(private))) == [
        "numba.core.compiler",
        "numba.core.event",
        "numba.typed",
        "numba.typed.X",
    ]
    patch = "import numba, numpy as np\nnumba.core.x = 1\nsetattr(np, 'y', 2)\ndel np.z\nself.w = 3"
    assert len(list(patched(ast.parse(patch)))) == 3


def kind_of(function):
    """How a function is compiled, and whether it may make arrays and is inlined."""
    for mark in function.decorator_list:
        name = dotted(mark.func if isinstance(mark, ast.Call) else mark)
        options = {
            word.arg for word in getattr(mark, "keywords", []) if getattr(word.value, "value", None) is True
        }
        if name[-1:] == ["of"]:
            return "body", options
        if name and name[-1] in KINDS:
            return name[-1], options
    return None, set()


ALL = {
    f"{name}.{node.name}": (*kind_of(node), node, imported(tree))
    for name, tree in sources()
    for node in tree.body
    if isinstance(node, ast.FunctionDef) and kind_of(node)[0] is not None
}
CLASSES = {
    f"{name}.{node.name}" for name, tree in sources() for node in tree.body if isinstance(node, ast.ClassDef)
}


def calls(function, names, module):
    """The full names of what a function calls, but for what it has named itself."""
    nodes = [node for line in function.body for node in ast.walk(line)]
    local = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in nodes:
        if isinstance(node, ast.Call) and dotted(node.func) and dotted(node.func)[0] not in local:
            full = in_full(node.func, names)
            yield full if "." in full or full in dir(builtins) else f"{module}.{full}"


def test_loops_call_loops():
    """Numba does not know what is not declared to be compiled."""
    wrong = {}
    for loop, (kind, _, function, names) in ALL.items():
        module = loop.rpartition(".")[0]
        if kind in LOOPS:
            own = {full for full in calls(function, names, module) if full.startswith("maxmargin.")}
            wrong[loop] = {full for full in own - CLASSES if full not in ALL or ALL[full][0] == "body"}
    assert len(wrong) > 200 and not {loop: found for loop, found in wrong.items() if found}


def test_arrays_are_made_where_it_is_declared_and_never_per_sample():
    wrong = {}
    for loop, (kind, options, function, names) in ALL.items():
        made = {full for full in calls(function, names, "") if full.removeprefix("numpy.") in MAKERS}
        if kind in LOOPS and made and "allocates" not in options:
            wrong[loop] = made
        if {"allocates", "hot"} <= options:
            wrong[loop] = options
    assert not wrong
