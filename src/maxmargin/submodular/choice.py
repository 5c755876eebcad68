"""The solvers of `SubmodularSVC`, and how "auto" chooses by the size and kind of the data alone.

The first row that holds is taken. With few weights and pairs one system in all of them is set up and factored
in no time, and interior point steps do not mind how features are scaled. Block steps cost little and need few
passes on rows of moderate length. Where c |x|^2 is large, as with features that nobody has scaled, or where
many samples share what few features tell, they need hundreds. Which of the two it is shows in the gap after
some epochs; the sets met until then are what interior point steps start from. These need the products of all
rows with each other.
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

# Up to this many weights a system in all of them is factored.
FACTORED = 2000
# Such a system is set up from a number for each pair in every set that is remembered.
FEW_PAIRS = 200
# With more labels, of all samples together, the preconditioner of conjugate gradients holds too few of the
# directions: on enron (60,000) these took 44 CPU seconds to a gap of 2.5e-3, and block steps alone take 10.
MOST_LABELS, MOST_PAIRS = 40_000, 1000
# Block steps stall if their gap is above this after so many epochs. Of the sets in ``python -m benchmarks
# submodular sets`` that is raw birds, at 0.99 by then. Where its columns have variance 1 they are at 0.05,
# and done in half the time that interior point steps take.
STALLED, EPOCHS = 0.3, 5


def bundle(model: Any, problem: SubmodularF1) -> Bundle:
    """Cutting planes."""
    start = model._start(problem, BundleSolution)
    return Bundle(problem, line_search=model.line_search, memory=model.plane_cache, start=start)


def bcfw(model: Any, problem: SubmodularF1) -> ClippedBCFW:
    """Block steps, which remember twice as many sets as other methods, or none."""
    start = model._start(problem, BlockSolution)
    rng = check_random_state(model.random_state)
    memory = model.plane_cache if model.plane_cache == 1 else 2 * model.plane_cache
    return ClippedBCFW(problem, rng, memory=memory, start=start)


def interior(model: Any, problem: SubmodularF1) -> InteriorPoint:
    """Interior point steps."""
    start = model._start(problem, InteriorSolution)
    return InteriorPoint(problem, memory=model.plane_cache, start=start, way=way(problem))


def bcfw_then_interior(model: Any, problem: SubmodularF1) -> Solver:
    """Block steps; interior point steps go on where these stall."""
    first = bcfw(model, problem)
    # With fewer places than labels a sample may have to forget sets that its optimum needs.
    memory = max(model.plane_cache, problem.truth.shape[1])

    def second() -> Solver:
        return InteriorPoint(problem, memory=memory, steps=first, way=way(problem))

    return Switch(first, second, is_far(first), ("bcfw", "interior"))


def is_far(steps: ClippedBCFW) -> Callable[[Progress], bool]:
    """For `Switch`: whether block steps are far from the optimum after the epochs that tell."""
    return lambda progress: steps.epochs == EPOCHS and progress.certificate.gap > STALLED


def way(problem: SubmodularF1) -> type[SetEquations]:
    """How the system of an interior point step is solved."""
    return Factored if problem.dimension <= FACTORED else Iterated


def few_weights(model: Any, problem: SubmodularF1) -> bool:
    """Whether a system in all weights is factored, and set up, in little time."""
    return problem.dimension <= FACTORED and len(problem.pairs) <= FEW_PAIRS


def tall(model: Any, problem: SubmodularF1) -> bool:
    """Whether interior point steps can take over: more samples than features, and not too many labels."""
    n, V, d, E = problem.shape
    return d < n and n * V <= MOST_LABELS and E <= MOST_PAIRS and model.plane_cache > 1


def goes_on(model: Any, problem: SubmodularF1) -> bool:
    """Whether the last fit, from which this one starts, ended with interior point steps."""
    return (
        tall(model, problem)
        and model.warm_start
        and isinstance(getattr(model, "_warm", [None])[0], InteriorSolution)
    )


ROWS = (
    Row(
        "interior",
        few_weights,
        interior,
        "Few weights and pairs: one system in all of them, whatever the scale of features and C.",
        "benchmarks/results/submodular_sets.csv",
    ),
    Row(
        "interior",
        goes_on,
        interior,
        "A warm start from a fit that ended with interior point steps.",
    ),
    Row(
        "bcfw",
        tall,
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
    """The solver of the first row that holds, under its name."""
    row = first_that_holds(ROWS, model, problem)
    solver: Any = row.build(model, problem)
    if not hasattr(solver, "name"):
        solver.name = row.name
    return solver
