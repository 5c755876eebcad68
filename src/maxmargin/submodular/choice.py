"""The solvers of `SubmodularSVC`, and how "auto" chooses by the size and kind of the data alone.

The first row that holds applies. With few weights and pairs, one system in all of them is cheap, and interior
point steps do not depend on the scale of the features. Block steps are cheap and need few passes on rows of
moderate length. If c |x|^2 is large, as with unscaled features, or if many samples share few features, they
need hundreds of passes. The gap after some epochs distinguishes the two cases; interior point steps then
start from the sets found so far. They need the products of all rows with each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn.utils import check_random_state

from maxmargin.core.loop import Progress, Solver, Switch
from maxmargin.edge.estimator import Row, first_that_holds
from maxmargin.submodular.bcfw import BlockSolution, ClippedBCFW
from maxmargin.submodular.bundle import Bundle, BundleSolution
from maxmargin.submodular.interior import (
    Factored,
    InteriorPoint,
    InteriorSolution,
    Iterated,
    SetEquations,
)
from maxmargin.submodular.problem import SubmodularF1

# Most weights of a system that is factorised.
FACTORED = 2000
# Most pairs of such a system, whose assembly needs a number per pair and remembered set.
FEW_PAIRS = 200
# Most labels of all samples together, and pairs, for conjugate gradients: with more of them the
# preconditioner contains too few of the directions.
MOST_LABELS, MOST_PAIRS = 40_000, 1000
# Block steps stall if their gap is above STALLED after EPOCHS epochs (``python -m benchmarks submodular
# sets``).
STALLED, EPOCHS = 0.3, 5


def bundle(model: Any, problem: SubmodularF1) -> Bundle:
    """Return the bundle method."""
    start = model._start(problem, BundleSolution)
    return Bundle(problem, line_search=model.line_search, memory=model.plane_cache, start=start)


def bcfw(model: Any, problem: SubmodularF1) -> ClippedBCFW:
    """Return block steps, which remember twice as many sets as other methods, or none."""
    start = model._start(problem, BlockSolution)
    rng = check_random_state(model.random_state)
    memory = model.plane_cache if model.plane_cache == 1 else 2 * model.plane_cache
    return ClippedBCFW(problem, rng, memory=memory, start=start)


def interior(model: Any, problem: SubmodularF1) -> InteriorPoint:
    """Return interior point steps."""
    start = model._start(problem, InteriorSolution)
    return InteriorPoint(problem, memory=model.plane_cache, start=start, linear_solver=linear_solver(problem))


def bcfw_then_interior(model: Any, problem: SubmodularF1) -> Solver:
    """Return block steps; if they stall, interior point steps continue."""
    first = bcfw(model, problem)
    # With fewer places than labels, a sample may forget sets that its optimum needs.
    memory = max(model.plane_cache, problem.truth.shape[1])

    def second() -> Solver:
        return InteriorPoint(problem, memory=memory, steps=first, linear_solver=linear_solver(problem))

    return Switch(first, second, is_far(first), ("bcfw", "interior"))


def is_far(steps: ClippedBCFW) -> Callable[[Progress], bool]:
    """Return a test for `Switch`: whether block steps are far from the optimum after `EPOCHS` epochs."""
    return lambda progress: steps.epochs == EPOCHS and progress.certificate.gap > STALLED


def linear_solver(problem: SubmodularF1) -> type[SetEquations]:
    """Return how the system of an interior point step is solved."""
    return Factored if problem.dimension <= FACTORED else Iterated


def few_weights(model: Any, problem: SubmodularF1) -> bool:
    """Whether a system in all weights is cheap to assemble and factorise."""
    return problem.dimension <= FACTORED and len(problem.pairs) <= FEW_PAIRS


def can_switch(model: Any, problem: SubmodularF1) -> bool:
    """Whether interior point steps can continue: more samples than features, and not too many labels."""
    n, V, d, E = problem.shape
    return d < n and n * V <= MOST_LABELS and E <= MOST_PAIRS and model.plane_cache > 1


def continues_interior(model: Any, problem: SubmodularF1) -> bool:
    """Whether this is a warm start from a fit that ended with interior point steps."""
    return (
        can_switch(model, problem)
        and model.warm_start
        and isinstance(getattr(model, "_warm", [None])[0], InteriorSolution)
    )


ROWS = (
    Row(
        "interior",
        few_weights,
        interior,
        "Few weights and pairs: one system in all of them, for any scale of features and C.",
        "benchmarks/results/submodular_sets.csv",
    ),
    Row(
        "interior",
        continues_interior,
        interior,
        "A warm start from a fit that ended with interior point steps.",
    ),
    Row(
        "bcfw",
        can_switch,
        bcfw_then_interior,
        "Many weights: block steps; then interior, if they are far from the optimum after five epochs.",
        "benchmarks/results/submodular_sets.csv",
    ),
    Row(
        "bcfw",
        lambda model, problem: True,
        bcfw,
        "More features than samples, or more labels than interior point steps can hold.",
        "benchmarks/results/submodular_sets.csv",
    ),
)


def default(model: Any, problem: SubmodularF1) -> Solver:
    """Return the solver of the first row that holds, under its name."""
    row = first_that_holds(ROWS, model, problem)
    solver: Any = row.build(model, problem)
    if not hasattr(solver, "name"):
        solver.name = row.name
    return solver
