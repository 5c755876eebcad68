"""Time of a linear `MultiClassSVC` fit in passes over the rows, beside LIBLINEAR.

letter, reuters-r52, 20newsgroups, mnist    the problems of `multiclass`, lambda = 0.001, gap 1e-3

A *pass* computes the scores of all classes for all rows (`decision_function`), which every method needs at
least once. Columns, in CPU seconds of one thread:

- `ours`, `liblinear`: a fit to a certified gap of 1e-3, and LinearSVC's Crammer-Singer machine at the loosest
  tolerance with an objective within 1e-3 of the best known bound; medians of fits in turns;
- `reading`: the sum of all stored entries of X, once; `one_pass`: a pass;
- `visits`: rows visited by our sweeps, as multiples of all rows;
- `sweeping`, `proving`, `rest`: shares of our fit in the sweeps, in the certificates, and in everything else
  (validation, layout, order), by a profile of separate fits;
- `visit_in_passes`: cost of a visit (scores, block step, updated weights) over that of a row in a pass;
- `passes`, `passes_for_tenfold`: our fit in passes, and the number of passes of a fit ten times as fast as
  LIBLINEAR.

Results: multiclass_passes.csv.
"""

from __future__ import annotations

import cProfile
import pstats
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from benchmarks.peers import linearsvc
from benchmarks.problems.multiclass import GAP, TOLERANCES, Problem, dense, real
from benchmarks.race import Row, Setting, machine, save
from maxmargin import MultiClassSVC

LAMBDA = 0.001
REPEATS = 5
SWEEPS, PROOFS = {"exact_sweep"}, {"score_pass", "rebuild"}


def seconds(call: Callable[[], Any]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def in_turns(calls: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The median CPU seconds of every call; they take turns."""
    taken = [{name: seconds(call) for name, call in calls.items()} for _ in range(repeats)]
    return {name: float(np.median([turn[name] for turn in taken])) for name in calls}


def in_loops(fit: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of a fit in the loops that sweep and in those that prove.

    By the clock, which is read in no time: asking for CPU time at every call took a third of a fit on letter.
    """
    profile = cProfile.Profile(time.perf_counter)
    profile.runcall(fit)
    stats: dict[Any, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    loops = {key[2]: value[2] for key, value in stats.items() if key[0].endswith("multiclass_loops.py")}
    return sum(loops.get(name, 0.0) for name in SWEEPS), sum(loops.get(name, 0.0) for name in PROOFS)


def loosest_tolerance(problem: Problem, bound: float) -> float:
    """Return the first tolerance of LinearSVC with an objective within `GAP` of the bound."""
    for tol in TOLERANCES:
        P = problem.primal(linearsvc.multiclass_weights(problem, tol))
        if (P - bound) / P <= GAP:
            return tol
    raise ValueError(f"LinearSVC does not come within {GAP:g} of the optimum of {problem.name}.")


def on_data(name: str, setting: Setting) -> None:
    whole = replace(dense(250), name=name) if setting.small else real(name)
    problem = replace(whole, C=1.0 / ((0.1 if setting.small else LAMBDA) * len(whole.y)))
    model = MultiClassSVC(C=problem.C, fit_intercept=False, tol=GAP, random_state=0)
    with threadpool_limits(1):
        fit, score = partial(model.fit, problem.X, problem.y), partial(model.decision_function, problem.X)
        fit()
        tol = loosest_tolerance(problem, problem.best_dual())
        calls = {
            "ours": fit,
            "liblinear": partial(linearsvc.multiclass_weights, problem, tol),
            "one_pass": score,
            "reading": partial(np.sum, problem.X.data if sp.issparse(problem.X) else problem.X),
        }
        taken = in_turns(calls, setting.times(REPEATS))
        spent = [in_loops(fit) for _ in range(setting.times(REPEATS))]
    ours, one_pass = taken["ours"], taken["one_pass"]
    visits = sum(record["active"] for record in model.history_) / len(problem.y)
    sweeping, proving = np.median(spent, axis=0) / ours
    row: Row = {
        "data": name,
        "rows": len(problem.y),
        "numbers_a_row": round(problem.X.size / len(problem.y), 1),
        "classes": len(model.classes_),
        "liblinear_tol": tol,
        **{key: f"{taken[key]:.4f}" for key in ("ours", "liblinear", "reading", "one_pass")},
        "times": f"{taken['liblinear'] / ours:.2f}",
        "visits": f"{visits:.1f}",
        "sweeping": f"{sweeping:.2f}",
        "proving": f"{proving:.2f}",
        "rest": f"{1 - sweeping - proving:.2f}",
        "visit_in_passes": f"{sweeping * ours / visits / one_pass:.2f}",
        "passes": f"{ours / one_pass:.1f}",
        "passes_for_tenfold": f"{taken['liblinear'] / 10 / one_pass:.1f}",
        "machine": machine(),
    }
    save(setting, "multiclass_passes", [row], ("data",))


RACES = {name: partial(on_data, name) for name in ("letter", "reuters-r52", "20newsgroups", "mnist")}
