"""Random valid fits of any estimator: parameters drawn from its constraints, small data of any scale.

``python -m tests.random_fits SEED`` fits one and shows what happened, ``... FIRST LAST`` a range. A fit ends
with finite numbers or with a ValueError that names what to change.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions

import maxmargin
from maxmargin._names import ESTIMATORS

NAMES = tuple(name for name in ESTIMATORS if name != "StreamRanker")
LABELS = {"MultiLabelSVC", "LabelRanker", "SparseMultiLabelSVC", "SubmodularSVC"}
GROUPS = {"ChainSVC", "LatentSVC"}
# Values of parameters that must stay small for a fast fit, or that their constraints do not describe.
FIXED: dict[str, tuple[Any, ...]] = {
    "max_iter": (1, 3, 30),
    "time_limit": (None, 1.0),
    "n_jobs": (None, 1, 2),
    "random_state": (0, 1),
    "verbose": (0,),
    "warm_start": (False,),
    "max_basis": (1, 4),
    "n_candidates": (1, 4, None),
    "n_init": (1, 2),
    "n_passes": (1, 2),
    "max_nodes": (1000,),
    "degree": (0, 1, 2, 3, 5),
    "cache_size": (0.001, 200.0),
    "prior": (None, maxmargin.priors.from_labels),
    "tol": (0.0, 1e-6, 1e-3, 0.1),
}
FINITE = (
    "coef_",
    "intercept_",
    "dual_coef_",
    "transitions_",
    "first_",
    "last_",
    "interaction_",
    "primal_objective_",
    "dual_objective_",
    "duality_gap_",
)


def value(rng: np.random.Generator, name: str, constraints: list[Any], default: Any) -> Any:
    """Draw a value that one of the constraints allows; the default if none of them can be drawn from."""
    if name in FIXED:
        return FIXED[name][rng.integers(len(FIXED[name]))]
    options: list[Any] = [default]
    for constraint in constraints:
        if constraint is None or constraint == "boolean":
            options += [None] if constraint is None else [False, True]
        elif isinstance(constraint, StrOptions):
            options += sorted(constraint.options - {"precomputed"})
        elif isinstance(constraint, Interval):
            options += [inside(rng, constraint)] * 3
    return options[rng.integers(len(options))]


def inside(rng: np.random.Generator, interval: Interval) -> Any:
    """A number of the interval: mostly up to a million, sometimes of any size."""
    low = -np.inf if interval.left is None else interval.left
    high = np.inf if interval.right is None else interval.right
    if interval.type is Integral:
        return int(rng.integers(max(low, -5), min(high, max(low, 0) + 6) + 1))
    if np.isfinite(low) and np.isfinite(high):
        return float(rng.uniform(low, high))
    reach = 30 if rng.random() < 0.1 else 6
    size = float(10.0 ** rng.uniform(-reach, reach))
    return max(low, 0.0) + size if np.isfinite(low) else size * rng.choice([-1.0, 1.0])


def rows(rng: np.random.Generator, n: int) -> Any:
    """Rows of any scale, with zeros, constant columns and repetitions, in any form."""
    d = int(rng.integers(1, 6))
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < rng.choice([0.0, 0.3, 1.0], p=[0.05, 0.35, 0.6]))
    X *= 10.0 ** rng.uniform(-8, 8) if rng.random() < 0.4 else 1.0
    if rng.random() < 0.2:
        X *= 10.0 ** rng.uniform(-4, 4, d)
    if rng.random() < 0.2:
        X[:, 0] = 1.0
    if rng.random() < 0.2:
        X[n // 2 :] = X[: n - n // 2]
    X = X.astype(rng.choice([np.float64, np.float32]))
    return sp.csr_array(X) if rng.random() < 0.3 else X


def read(cls: type, given: dict[str, Any]) -> dict[str, Any]:
    """What the chosen solver reads; the rest would be refused."""
    solvers = getattr(sys.modules[cls.__module__], "SOLVERS", {})
    if not solvers:
        return given
    special = {word for choice in solvers.values() for word in choice.reads}
    kept = solvers[given.get("solver", cls().solver)].reads
    return {key: part for key, part in given.items() if key not in special or key in kept}


def draw(seed: int) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Estimator, arguments and keywords of one fit."""
    rng = np.random.default_rng(seed)
    name = NAMES[seed % len(NAMES)]
    cls = getattr(maxmargin, name)
    defaults = cls().get_params()
    given = {
        key: value(rng, key, constraints, defaults[key])
        for key, constraints in cls._parameter_constraints.items()
        if rng.random() < 0.5 or key in ("max_iter", "max_basis")
    }
    given = read(cls, given)
    n = int(rng.integers(2, 25))
    X, kinds, keywords = rows(rng, n), int(rng.integers(2, 5)), {}
    samples = n
    if name in GROUPS and n > 3:
        cuts = np.sort(rng.choice(np.arange(1, n), int(rng.integers(1, n)), replace=False))
        keywords["lengths"] = np.diff(np.concatenate([[0], cuts, [n]]))
        samples = len(keywords["lengths"])
    y = rng.integers(0, kinds, samples if name == "LatentSVC" else n)
    if name in LABELS:
        y = (rng.random((n, kinds)) < rng.choice([0.1, 0.5])).astype(int)
    if rng.random() < 0.3 and name != "LabelRanker":
        keywords["sample_weight"] = rng.integers(0, 3, samples).astype(float)
    return cls(**given), (X, y), keywords


def failure(model: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> str:
    """Fit and predict; return the error, unless it is a ValueError that names the remedy."""
    try:
        model.fit(*arguments, **keywords)
        model.predict(arguments[0], **{key: part for key, part in keywords.items() if key == "lengths"})
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, RuntimeWarning, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    except ValueError as error:
        raised_in = traceback.extract_tb(error.__traceback__)[-1].filename
        ours = type(error) is ValueError and ("/maxmargin/" in raised_in or "/sklearn/" in raised_in)
        return "" if ours else f"{type(error).__name__}: {error}"
    return ""


def complaint(seed: int) -> str:
    """What is wrong with the outcome of a fit; empty for finite numbers and errors that say what to do."""
    model, arguments, keywords = draw(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        failed = failure(model, arguments, keywords)
    if failed:
        return failed
    stored = {name: getattr(model, name) for name in FINITE if hasattr(model, name)}
    numbers = {
        name: found.data if sp.issparse(found) else np.asarray(found) for name, found in stored.items()
    }
    wrong = [name for name, found in numbers.items() if not np.isfinite(found.astype(float)).all()]
    return f"not finite: {', '.join(wrong)}" if wrong else ""


def main() -> None:
    first, last = int(sys.argv[1]), int(sys.argv[-1])
    for seed in range(first, last + 1):
        found = complaint(seed)
        if found or first == last:
            model, (X, _), keywords = draw(seed)
            print(
                f"{seed}: {found or 'fine'}\n    {model} on {X.dtype} {X.shape} {sorted(keywords)}",
                flush=True,
            )


if __name__ == "__main__":
    main()
