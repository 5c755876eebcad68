"""How `MultiClassSVC(solver="auto")` chooses, by the size and kind of the data alone.

The first row that holds is chosen. Few weights are solved by Newton steps and few samples by interior points:
LAPACK does the work, and no loop is compiled. Block steps are the fastest on sparse rows and many samples.
They need thousands of passes if C |x|^2 is large, as it is for unscaled features; a gap that falls too slowly
shows it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from maxmargin.core.loop import Progress, Solver, Switch
from maxmargin.edge.estimator import Row
from maxmargin.structured.exact import FullEpochs
from maxmargin.structured.kernel_interior import InteriorBlocks
from maxmargin.structured.multiclass_problem import (
    KernelMultiClass,
    LinearMultiClass,
    MultiClassProblem,
    Setup,
)
from maxmargin.structured.newton import ProximalNewton
from maxmargin.structured.working_sets import WorkingSets

# The largest order of a matrix of few weights, and the most dual variables next to it.
FEW_WEIGHTS, FEW_DUALS = 300, 5000
# The mean C |x|^2 above which block steps are slow; the largest order of a matrix to factor instead, for any
# number of samples and for more samples than features.
CURVED, SMALL_ORDER, ORDER = 100.0, 125, 600
# The largest c n^3 of interior points on rows, and on a kernel with at most so many samples.
WORK_OF_ROWS, WORK_OF_KERNEL, FEW_SAMPLES = 3e7, 3e8, 300
# Newton steps can take over from block steps up to so many features; up to this order one is cheap.
FEATURES, CHEAP = 2000, 3000
# In how many epochs the gap of block steps must fall to which share of itself: where Newton steps are cheap,
# and where they are not.
SOON, LATE = (20, 0.25), (200, 0.5)


def single_is_enough(
    problem: MultiClassProblem, tol: float, *, loose: float = 1e-4, kappa: float = 1e3, norm: float = 1e12
) -> bool:
    """Whether float32 resolves the steps that the requested gap needs.

    A block moves by H / kappa, which float32 resolves next to 1 while kappa is moderate.
    """
    return tol >= loose and problem.kappa.max(initial=0.0) <= kappa and problem.norms.max(initial=0.0) <= norm


def few_weights(problem: MultiClassProblem) -> bool:
    """Whether weights and dual variables are few; with two classes Newton's matrix is that of one class."""
    if not isinstance(problem, LinearMultiClass):
        return False
    order = (problem.rows.shape[1] + 1) * (1 if problem.c == 2 else problem.c)
    return order <= FEW_WEIGHTS and problem.n * problem.c <= FEW_DUALS


def curved(problem: MultiClassProblem) -> bool:
    """Whether block steps are slow, and a matrix of Newton steps is small."""
    if not isinstance(problem, LinearMultiClass):
        return False
    n, d = problem.rows.shape
    order = (d + 1) * problem.c
    small = order <= SMALL_ORDER or (order <= ORDER and d < n)
    return small and float(problem.kappa.mean()) > CURVED


def few_samples(problem: MultiClassProblem) -> bool:
    """Whether samples are few compared with the features or weights; with a kernel, whether they are few."""
    n, c = problem.n, problem.c
    if c < 2 or not problem.present.size:
        return False
    if isinstance(problem, LinearMultiClass):
        wide = problem.rows.shape[1] >= n or not (few_weights(problem) or curved(problem))
        return wide and c * n**3 <= WORK_OF_ROWS
    small = n <= FEW_SAMPLES and c * n**3 <= WORK_OF_KERNEL
    return small and isinstance(problem, KernelMultiClass) and problem.K.is_definite()


def tall(problem: MultiClassProblem) -> bool:
    """Whether Newton steps can take over: there are fewer features than samples."""
    if not isinstance(problem, LinearMultiClass):
        return False
    n, d = problem.rows.shape
    return d <= FEATURES and d < n


def cheap(problem: LinearMultiClass) -> bool:
    """Whether a Newton step is cheap."""
    return problem.c * (problem.rows.shape[1] + 1) <= CHEAP


def falls_slowly(epochs: int, factor: float) -> Callable[[Progress], bool]:
    """For `Switch`: whether the gap is more than `factor` times that of so many epochs before."""
    gaps = [math.inf]

    def when(progress: Progress) -> bool:
        gaps.append(progress.certificate.gap)
        return len(gaps) % epochs == 1 and gaps[-1] > factor * gaps[-1 - epochs]

    return when


def block_steps(late: tuple[int, float], problem: LinearMultiClass, setup: Setup) -> Solver:
    """Block steps, then Newton steps once the gap falls too slowly."""
    first = FullEpochs(problem, setup, first_multiple=late[0])

    def second() -> Solver:
        solution = first.solution()
        # The blocks are near the optimum, so the first tau may be smaller.
        newton = ProximalNewton(problem, replace(setup, blocks=solution.blocks), first=1.0)
        newton.offer(solution.weights)
        return newton

    return Switch(first, second, falls_slowly(*late), ("exact", "newton"))


ROWS = (
    Row(
        "interior",
        few_samples,
        InteriorBlocks,
        "Few samples: all blocks at once, a Cholesky factor of their order for every class.",
        "benchmarks/results/defaults.md",
    ),
    Row(
        "newton",
        few_weights,
        ProximalNewton,
        "Few weights and samples: a dozen factors of a small matrix.",
        "benchmarks/results/defaults.md",
    ),
    Row(
        "newton",
        curved,
        ProximalNewton,
        "Large C |x|^2, as of features that are not scaled: block steps take thousands of passes.",
    ),
    Row(
        "exact",
        lambda problem: tall(problem) and cheap(problem),
        partial(block_steps, SOON),
        "Block steps; then newton, if their gap has not fallen to a quarter in 20 epochs.",
        "benchmarks/results/defaults.md",
    ),
    Row(
        "exact",
        tall,
        partial(block_steps, LATE),
        "Block steps; then newton, whose steps are expensive, if their gap has not halved in 200 epochs.",
    ),
    Row(
        "exact",
        lambda problem: isinstance(problem, LinearMultiClass),
        FullEpochs,
        "Sparse or wide rows: block steps.",
        "benchmarks/results/multiclass.csv",
    ),
    Row(
        "working-sets",
        lambda problem: True,
        WorkingSets,
        "A kernel: block steps on working sets that share its matrix, and interior points where C is large.",
        "benchmarks/results/multiclass_rbf.csv",
    ),
)
