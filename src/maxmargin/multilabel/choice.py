"""How `MultiLabelSVC(solver="auto")` chooses, by the size and kind of the data alone.

The first row of `ROWS` whose condition holds is used. Sweeps of coordinate ascent are the fastest method on
wide data, and pair steps on kernels, but their rate depends on the conditioning of X, K, R and C: a few
features of different scales, or a large constant one, can stall them. Newton's method does not depend on it.
It comes first if weights are few, and second if sweeps stall and a step costs at most about a second.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.core.loop import Solver, Switch, stalls
from maxmargin.edge.estimator import Row, first_that_holds
from maxmargin.multilabel.kernel_sweeps import KernelSweeps
from maxmargin.multilabel.label_blocks import LabelBlocks, ManyM3L
from maxmargin.multilabel.newton import DIRECT, KernelNewton, LabelByLabel, Newton
from maxmargin.multilabel.problem import M3L, KernelM3L, LinearM3L
from maxmargin.multilabel.sweeps import LabelSweeps, SampleSweeps

# Newton's method comes first for up to FEATURES features (or columns of all labels that a prior couples) if
# at least LEAST_FILLED of X is not zero (sweeps skip zeros, Newton steps do not); CELLS is the largest dense
# copy.
FEATURES, FEATURES_OF_SQUARES, LEAST_FILLED, CELLS = 300, 500, 0.2, 5 * 10**7
# Up to SMALL multiply-adds for the second derivatives of all labels a fit takes less time than compiling the
# sweeps. Above, sweeps take a few epochs if the mean of C |x|^2 is below CURVED.
SMALL, CURVED = 5e8, 3.0
# More coupled columns are solved by conjugate gradients, whose number grows with the condition of the prior;
# about ten copies of the dual variables are kept.
CONDITION, ENTRIES = 500.0, 5 * 10**6
# Samples up to which K is factored in less time than loops are compiled.
FEW_SAMPLES = 300
# Largest cost of a step of Newton's method as the second solver: multiply-adds of a second, dual variables.
WORK, SIZE = 2e10, 2 * 10**7
# Epochs in which the gap of sweeps, and of pair steps, must halve.
SWEEPS, PAIRS = 15, 5
# Label blocks: features up to which Newton's method is the fallback, for dense and for sparse rows; and the
# products of X'X per entry of X up to which it comes first for the squared hinge. At 18 (tmc2007-500) it
# takes at most a quarter of the time of the ascent, at 61 (delicious) up to twice as long.
LATE_FEATURES, LATE_CELLS, LATE_SPARSE, PRODUCTS = 1200, 2 * 10**7, 2000, 25.0


def few_features(problem: LinearM3L) -> bool:
    """Whether features are few and dense enough for Newton's method to come first."""
    (n, L), d = problem.shape, problem.n_features
    costs = problem.costs
    C = float(costs.weight.mean()) * float(costs.upper.mean())
    if n * L * d**2 > SMALL and C * (float(problem.q.mean()) + problem.bias**2) < CURVED:
        return False
    if LEAST_FILLED * n * d > problem.rows.data.size or d > FEATURES or n * d > CELLS:
        return False
    few = not problem.coupled or d * len(problem.factor) <= FEATURES
    return few or weakly_coupled(problem)


def weakly_coupled(problem: LinearM3L) -> bool:
    """Whether conjugate gradients can solve Newton's equations of labels that a prior couples."""
    n, L = problem.shape
    return problem.coupled and n * L <= ENTRIES and problem.condition <= CONDITION


def affordable(problem: M3L) -> bool:
    """Whether a Newton step costs at most about a second."""
    n, L = problem.shape
    D = problem.n_features if isinstance(problem, LinearM3L) else n
    separate = isinstance(problem, LinearM3L) and weakly_coupled(problem)
    rank = len(problem.factor) if problem.coupled and not separate else 1
    order = (D + 1) * rank
    work = L * (n * (D + 1.0) ** 2 + order**2) + (L if separate else 1) * order**3
    return order <= DIRECT and work <= WORK and n * max(L, D) <= SIZE


def newton(
    problem: LinearM3L, alpha: np.ndarray, *, tol: float, n_threads: int = 1, rng: Any = None
) -> Solver:
    """Newton's method; it draws no random numbers."""
    return Newton(problem, alpha, tol=tol, n_threads=n_threads)


def kernel_newton(
    problem: KernelM3L, alpha: np.ndarray, *, tol: float, n_threads: int = 1, rng: Any = None
) -> Solver:
    """Newton's method on a factor of K."""
    return KernelNewton(problem.precise(), alpha, tol=tol, n_threads=n_threads)


def sweeps(
    problem: LinearM3L, alpha: np.ndarray, *, tol: float, rng: np.random.RandomState, n_threads: int = 1
) -> Solver:
    """Sweeps for the problem, then Newton's method from their state if they stall and it is affordable."""
    kind = SampleSweeps if problem.coupled else LabelSweeps
    first = kind(problem, alpha, tol=tol, rng=rng, n_threads=n_threads)
    if not affordable(problem):
        return first

    def second() -> Solver:
        return Newton(problem, first.alpha.astype(np.float64), tol=tol, n_threads=n_threads)

    return Switch(first, second, stalls(SWEEPS), ("sweeps", "newton"))


def kernel_sweeps(
    problem: KernelM3L, alpha: np.ndarray, *, tol: float, rng: np.random.RandomState, n_threads: int = 1
) -> Solver:
    """Pair steps, then Newton's method from their state if they stall and it is affordable."""
    first = KernelSweeps(problem, alpha, tol=tol, rng=rng, n_threads=n_threads)
    if not affordable(problem):
        return first

    def second() -> Solver:
        return kernel_newton(problem, first.solution().alpha, tol=tol, n_threads=n_threads)

    return Switch(first, second, stalls(PAIRS), ("kernel-sweeps", "newton"))


def few_samples(problem: M3L) -> bool:
    """Whether the kernel matrix is small and definite, and no prior couples the labels."""
    if not isinstance(problem, KernelM3L) or problem.coupled or problem.shape[0] > FEW_SAMPLES:
        return False
    return problem.K.is_definite()


def label_by_label(problem: ManyM3L, *, rng: Any, **options: Any) -> LabelByLabel:
    """Newton's method for one label after the other; it draws no random numbers."""
    return LabelByLabel(problem, **options)


def label_blocks(problem: ManyM3L, *, rng: np.random.RandomState, **options: Any) -> LabelBlocks:
    """Ascent on active sets, with Newton's method as the fallback if features are few."""
    few = narrow(problem, LATE_FEATURES, LATE_CELLS)
    few |= problem.squared and not problem.rows.dense and problem.n_features <= LATE_SPARSE
    fallback = (lambda: LabelByLabel(problem, **options)) if few else None
    return LabelBlocks(problem, rng=rng, fallback=fallback, **options)


def narrow(problem: ManyM3L, features: int, cells: int) -> bool:
    """Whether features are few, and a dense copy of X is small."""
    d = problem.n_features
    return d <= features and problem.shape[0] * d <= cells


def few_columns(problem: ManyM3L) -> bool:
    """Whether features are few and dense, or X'X of sparse rows is cheap for the squared hinge.

    The multiply-adds of a triangular factor count a twentieth.
    """
    entries, d = problem.rows.data.size, problem.n_features
    most = FEATURES_OF_SQUARES if problem.squared else FEATURES
    if narrow(problem, most, CELLS) and LEAST_FILLED * problem.shape[0] * d <= entries:
        return True
    if not problem.squared or problem.rows.dense or d > FEATURES_OF_SQUARES:
        return False
    lengths = np.diff(problem.rows.indptr)
    products = 0.5 * float(lengths @ (lengths + 1.0)) + (d + 1.0) ** 3 / 60
    return products <= PRODUCTS * max(entries, 1)


ROWS = (
    Row(
        "newton",
        lambda problem, double: few_samples(problem),
        kernel_newton,
        "A kernel of few samples: its matrix is factored once, and nothing is compiled.",
        "benchmarks/results/cold_fits.csv",
    ),
    Row(
        "kernel-sweeps",
        lambda problem, double: isinstance(problem, KernelM3L),
        kernel_sweeps,
        "A kernel: pair steps on a matrix that all labels share; then newton, if the gap has not halved in "
        "five epochs.",
        "benchmarks/results/kernel_multilabel.csv",
    ),
    Row(
        "newton",
        lambda problem, double: isinstance(problem, ManyM3L) and few_columns(problem),
        label_by_label,
        "Sparse labels and few dense features: every sample is near the margin of every label.",
    ),
    Row(
        "label-blocks",
        lambda problem, double: isinstance(problem, ManyM3L),
        label_blocks,
        "Sparse labels: ascent on the samples near the margin of a label, block by block; then newton, for "
        "labels on which the ascent takes too long.",
        "benchmarks/results/many_labels.csv",
    ),
    Row(
        "newton",
        lambda problem, double: double and few_features(problem),
        newton,
        "Few dense features: coordinate steps stall if features overlap or differ in scale.",
        "benchmarks/results/defaults.md",
    ),
    Row(
        "sweeps",
        lambda problem, double: True,
        sweeps,
        "Sparse or wide rows: dual coordinate ascent; then newton, if the gap has not halved in 15 epochs.",
        "benchmarks/results/multilabel_sets.csv",
    ),
)


def default(problem: M3L | ManyM3L, *alpha: np.ndarray, **options: Any) -> Any:
    """The solver of the first row whose condition holds; it works in the precision of `alpha`.

    Sparse labels have no matrix of dual variables to start from.
    """
    row = first_that_holds(ROWS, problem, not alpha or alpha[0].dtype == np.float64)
    solver = row.build(problem, *alpha, **options)
    if not hasattr(solver, "name"):
        solver.name = row.name
    return solver
