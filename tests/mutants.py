"""Mutants: wrong lines that the suite must notice, one at a time.

``python -m tests.mutants`` copies the repository to a temporary folder, applies each mutant of `MUTANTS`
there and runs the tests of its room. Loops run as plain Python, so nothing is compiled. The exit status is
the number of mutants that no test notices. ``python -m tests.mutants Viterbi sets`` runs those whose names
contain one of the words. `tests/mutants.md` describes the list.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
COPIED = ("src", "tests", "tools", "benchmarks", "experiments", "conftest.py", "pyproject.toml")


class Mutant(NamedTuple):
    """A wrong text for one that a single file of a folder of `src/maxmargin` holds, and the tests to run."""

    name: str
    folder: str
    text: str
    wrong: str
    tests: str


NOJIT = "-m nojit"
MUTANTS = (
    Mutant(
        "labels: upper bound of the sweeps' dual variables dropped",
        "multilabel",
        "new = where_above(new, c, c, new)",
        "new = where_above(new, c, new, new)",
        "tests/multilabel/test_loops.py",
    ),
    Mutant(
        "labels: sign of the gradient in the paper's coordinate ascent",
        "multilabel",
        "g = m - y * row_column_dot(rows, i, bias, l, Z)",
        "g = m + y * row_column_dot(rows, i, bias, l, Z)",
        "tests/multilabel/test_loops.py",
    ),
    Mutant(
        "labels: determinant of the pair step with a kernel",
        "multilabel",
        "det = k_pp * k_qq - k_pq * k_pq",
        "det = k_pp * k_qq + k_pq * k_pq",
        f"tests/multilabel {NOJIT}",
    ),
    Mutant(
        "labels: entries at the lower bound left out of the gap",
        "multilabel",
        "gap = (boxes - a) * hinge + a * np.maximum(-g, 0.0)",
        "gap = (boxes - a) * hinge",
        "tests/multilabel/test_problem.py tests/multilabel/test_loops.py",
    ),
    Mutant(
        "classes: twice the step of the exact line search (10)",
        "core",
        "return slope / curvature\n",
        "return 2.0 * slope / curvature\n",
        f"tests/structured {NOJIT}",
    ),
    Mutant(
        "classes: dual objective of the certificate without its factor 1/2",
        "structured",
        "linear - 0.5 * squared_norm(W)",
        "linear - squared_norm(W)",
        "tests/structured/test_multiclass_solvers.py -k fixed_point",
    ),
    Mutant(
        "classes: certificate from float32",
        "structured",
        "W = self.zeros(np.float64) if rebuild",
        "W = self.zeros(np.float32) if rebuild",
        "tests/structured/test_multiclass_solvers.py -k certified",
    ),
    Mutant(
        "classes: sign of a proximal Newton step's dual objective",
        "core",
        "found.values - half_squares(image)",
        "found.values + half_squares(image)",
        "tests/core/test_proximal_newton.py tests/structured/test_newton.py -k 'proximal or split'",
    ),
    Mutant(
        "chains: Viterbi starts one position late",
        "structured",
        "for t in range(1, length):\n        before, row = forward[t - 1], forward[t]",
        "for t in range(2, length):\n        before, row = forward[t - 1], forward[t]",
        f"tests/structured {NOJIT}",
    ),
    Mutant(
        "chains: entropy of the last label counted twice in the target (9)",
        "structured",
        "return 0 if t == 0 or t == length - 1 else -1",
        "return 0 if t == 0 else -1",
        f"tests/structured {NOJIT}",
    ),
    Mutant(
        "bags: sign of the bias in the features of a pair",
        "structured",
        "row_column_add(bags.rows, bags.offsets[i] + answer[0], bags.bias, -scale, answer[1], W)",
        "row_column_add(bags.rows, bags.offsets[i] + answer[0], -bags.bias, -scale, answer[1], W)",
        f"tests/structured {NOJIT}",
    ),
    Mutant(
        "ranking: the best mass of a pair is twice too large",
        "ranking",
        "min(C, max(0.0, 0.5 * (gamma - (u - v))))",
        "min(C, max(0.0, gamma - (u - v)))",
        f"tests/ranking {NOJIT}",
    ),
    Mutant(
        "ranking: bound C of the mass forgotten",
        "ranking",
        "high = max(low, min(C, fill_next, drain_next))",
        "high = max(low, min(fill_next, drain_next))",
        f"tests/ranking {NOJIT}",
    ),
    Mutant(
        "sparse: curvature of the squared margins without its factor 2",
        "sparse",
        "stars = Stars(self.y, 2 * self.c, start, leaves[: start[-1]].copy())",
        "stars = Stars(self.y, self.c, start, leaves[: start[-1]].copy())",
        "tests/sparse/test_losses.py",
    ),
    Mutant(
        "sparse: lower bound of the full model twice too high",
        "sparse",
        "return total**2 / (4 * (loss + 0.5 * quadratic))",
        "return total**2 / (2 * (loss + 0.5 * quadratic))",
        "tests/sparse/test_problem.py tests/sparse/test_losses.py",
    ),
    Mutant(
        "sets: capacity of an arc is the whole weight of a pair",
        "submodular",
        "ahead = 0.5 * (matrix[i, j] + t * (positive[i] + positive[j]))",
        "ahead = matrix[i, j] + t * (positive[i] + positive[j])",
        "tests/submodular/test_cuts.py -k enumeration",
    ),
    Mutant(
        "sets: F1 of a set counts its hits once",
        "submodular",
        "1.0 - 2.0 * hits / (size + n1)",
        "1.0 - 1.0 * hits / (size + n1)",
        f"tests/submodular {NOJIT}",
    ),
)


def find(root: Path, mutant: Mutant) -> Path:
    """The file that holds the text once; an error if the text was renamed or is not unique."""
    folder = root / "src" / "maxmargin" / mutant.folder
    found = [
        path for path in sorted(folder.rglob("*.py")) for _ in range(path.read_text().count(mutant.text))
    ]
    if len(found) != 1:
        raise SystemExit(
            f"{mutant.name}: {mutant.text!r} occurs {len(found)} times in {folder}, not once; update MUTANTS"
        )
    return found[0]


def is_caught(root: Path, mutant: Mutant) -> bool:
    """Whether a test fails with the mutant in the copy of the repository at `root`."""
    path = find(root, mutant)
    source = path.read_text()
    path.write_text(source.replace(mutant.text, mutant.wrong))
    try:
        return run_tests(root, mutant.tests)
    finally:
        path.write_text(source)


def run_tests(root: Path, tests: str) -> bool:
    """Whether one of the tests fails; an error if none could be run."""
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": f"{root / 'src'}"}
    command = f"{sys.executable} -m pytest -x -q -p no:cacheprovider {tests}"
    done = subprocess.run(command, shell=True, cwd=root, env=environment, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{command} ended with status {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.returncode == 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Apply each mutant and run the tests that must notice it.")
    parser.add_argument("words", nargs="*", help="run only the mutants whose names contain one of these")
    parser.add_argument("--unchanged", action="store_true", help="run the same tests without any mutant")
    options = parser.parse_args()
    chosen = [m for m in MUTANTS if not options.words or any(word in m.name for word in options.words)]
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in COPIED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, root / name)
        for mutant in chosen:
            find(root, mutant)
        if options.unchanged:
            failing = [tests for tests in sorted({m.tests for m in chosen}) if run_tests(root, tests)]
            print(*(f"fails without a mutant: {tests}" for tests in failing), sep="\n")
            return len(failing)
        for mutant in chosen:
            caught = is_caught(root, mutant)
            missed += not caught
            print("caught" if caught else "MISSED", mutant.name, flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} mutants are caught.")
    return missed


if __name__ == "__main__":
    sys.exit(main())
