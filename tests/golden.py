"""Golden results: the outcome of about sixty fits, bit for bit, on one machine.

``python -m tests.golden`` fits every solver of every estimator on small generated data (dense and
CSR, float32 and float64) and compares epochs, objectives and a hash of the rounded coefficients
with ``tests/fixtures/golden.json``; ``--write`` records them anew. A refactoring changes no result.
Another processor may sum in another order, so only this script compares hashes; the suite compares the
bounds of new fits with the recorded ones (``tests/test_golden.py``).
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import maxmargin
from maxmargin import priors

RECORD = Path(__file__).parent / "fixtures" / "golden.json"
LEARNT = ("coef_", "intercept_", "dual_coef_", "transitions_", "first_", "last_", "interaction_")
FORMS = tuple(itertools.product(("dense", "csr"), ("float64", "float32")))


def features(form: str, dtype: str, n: int = 120, d: int = 8) -> Any:
    """Rows of which about a third of the entries are zero, in the given form."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.7)
    X = X.astype(dtype)
    return sp.csr_array(X) if form == "csr" else X


def indicators(n: int = 120, L: int = 5) -> np.ndarray:
    """Labels that depend on the features and on each other."""
    rng = np.random.default_rng(8)
    scores = features("dense", "float64", n) @ rng.normal(size=(8, 3)) @ rng.normal(size=(3, L))
    return (scores + 0.8 * rng.normal(size=(n, L)) > 0.3).astype(int)


def classes(n: int = 120, c: int = 4) -> np.ndarray:
    """One class per row, with noise."""
    rng = np.random.default_rng(9)
    scores = features("dense", "float64", n) @ rng.normal(size=(8, c)) + 0.7 * rng.normal(size=(n, c))
    return np.argmax(scores, axis=1)


def cases() -> Iterator[tuple[str, Any, tuple, dict[str, Any]]]:
    """Name, estimator, arguments and keywords of every fit."""
    multilabel = {
        "auto": {},
        "prior": {"prior": priors.from_labels},
        "low rank": {"prior": np.outer([1, -1, 1, 1, -1], [1, -1, 1, 1, -1]) + 1e-9 * np.eye(5)},
        "dca": {"solver": "dca", "prior": priors.from_labels},
        "tied": {"loss": "tied", "prior": priors.shrink(np.eye(5) + 0.1, 0.5)},
        "rbf": {"kernel": "rbf"},
        "rbf prior": {"kernel": "rbf", "prior": priors.from_labels},
        "smo": {"kernel": "rbf", "solver": "smo"},
    }
    for (name, given), (form, dtype) in itertools.product(multilabel.items(), FORMS):
        if (form == "dense") == (dtype == "float64") or name in ("auto", "rbf", "prior"):
            model = maxmargin.MultiLabelSVC(C=2.0, tol=1e-5, random_state=0, **given)
            yield f"multilabel {name} {form} {dtype}", model, (features(form, dtype), indicators()), {}
    single = maxmargin.MultiLabelSVC(precision="single", tol=1e-4, random_state=0)
    yield "multilabel single", single, (features("dense", "float64", 600), indicators(600)), {}
    solvers = ("exact", "bcfw", "bcpl", "oeg", "fw", "pl", "eg")
    for solver, (form, dtype) in itertools.product(solvers, FORMS):
        if (form == "dense") == (dtype == "float64"):
            model = maxmargin.MultiClassSVC(C=0.5, solver=solver, tol=1e-3, max_iter=60, random_state=0)
            yield f"multiclass {solver} {form} {dtype}", model, (features(form, dtype), classes()), {}
    for name, given in {
        "single": {"solver": "exact", "precision": "single"},
        "newton": {"solver": "newton"},
        "weston_watkins": {"loss": "weston_watkins"},
        "rbf": {"kernel": "rbf"},
        "rbf bcfw": {"kernel": "rbf", "solver": "bcfw"},
        "rbf parts": {"kernel": "rbf", "cache_size": 0.02},
    }.items():
        model = maxmargin.MultiClassSVC(C=1.0, tol=1e-3, max_iter=100, random_state=0, **given)
        yield f"multiclass {name}", model, (features("dense", "float64"), classes()), {}
    for solver, (form, dtype) in zip(("pairwise", "bcfw", "bcpl", "oeg"), FORMS, strict=True):
        model = maxmargin.ChainSVC(solver=solver, tol=1e-2, max_iter=40, random_state=0)
        yield f"chain {solver}", model, (features(form, dtype), classes()), {"lengths": np.full(30, 4)}
    for solver, (form, dtype) in zip(("pairwise", "bcfw", "bcpl", "oeg"), FORMS, strict=True):
        model = maxmargin.LatentSVC(solver=solver, tol=1e-2, random_state=0)
        yield f"latent {solver}", model, (features(form, dtype), classes(40)), {"lengths": np.full(40, 3)}
    for k, given in enumerate(
        (
            {"update": "fixed"},
            {"update": "worst_pair"},
            {"update": "all_pairs"},
            {"update": "all_pairs", "solver": "pdip"},
            {"regulariser": "entropy", "update": "fixed"},
            {"regulariser": "entropy", "update": "worst_pair"},
            {"regulariser": "entropy", "update": "all_pairs"},
            {"weighting": "idf", "average": True},
        )
    ):
        form, dtype = FORMS[k % 4]
        X = abs(features(form, dtype))
        yield (
            f"ranking {' '.join(map(str, given.values()))}",
            maxmargin.LabelRanker(**given, max_iter=1, shuffle=False),
            (X, indicators()),
            {},
        )
    small = {"max_basis": 12, "n_candidates": 8, "random_state": 0}
    for k, (name, given) in enumerate(
        {
            "block": {},
            "sequential": {"selection": "sequential"},
            "sweeps": {"solver": "sweeps"},
        }.items()
    ):
        form, dtype = FORMS[k % 4]
        X = features(form, dtype)
        yield f"sparse classes {name}", maxmargin.SparseMultiClassSVC(**small, **given), (X, classes()), {}
        yield f"sparse labels {name}", maxmargin.SparseMultiLabelSVC(**small, **given), (X, indicators()), {}
    for name, given in {
        "bundle": {"solver": "bundle"},
        "bcfw": {"solver": "bcfw"},
        "fixed point": {"solver": "bcfw", "inference": "fixed_point"},
    }.items():
        for form, dtype in FORMS[::3]:
            model = maxmargin.SubmodularSVC(C=0.1, tol=1e-2, random_state=0, **given)
            yield f"submodular {name} {form} {dtype}", model, (features(form, dtype), indicators()), {}


def digest(model: Any) -> str:
    """Hash of the learnt arrays, rounded to nine digits of the largest entry."""
    total = hashlib.sha256()
    for name in LEARNT:
        value = getattr(model, name, None)
        if value is not None:
            value = np.asarray(value, np.float64)
            scale = 10.0 ** np.ceil(np.log10(np.abs(value).max(initial=0.0) or 1.0))
            total.update(np.round(value / scale, 9).tobytes() if value.size else b"")
    return total.hexdigest()[:16]


def measure(model: Any, arguments: tuple, keywords: dict[str, Any]) -> dict[str, Any]:
    """Epochs, objectives and hash of one fit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(*arguments, **keywords)
    return {
        "n_iter": int(getattr(model, "n_iter_", 0)),
        "primal": float(getattr(model, "primal_objective_", np.nan)),
        "dual": float(getattr(model, "dual_objective_", np.nan)),
        "hash": digest(model),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="record the results instead of comparing them")
    parser.add_argument("--only", default="", help="only names that begin so")
    options = parser.parse_args()
    chosen = [case for case in cases() if case[0].startswith(options.only)]
    found = {name: measure(model, arguments, keywords) for name, model, arguments, keywords in chosen}
    recorded = json.loads(RECORD.read_text())
    if options.write:
        RECORD.write_text(json.dumps(recorded | found, indent=1) + "\n")
        return
    changed = [name for name, result in found.items() if not alike(result, recorded[name])]
    for name in changed:
        print(f"{name}\n  was {recorded[name]}\n  is  {found[name]}")
    print(f"{len(found) - len(changed)} of {len(found)} are identical.")


def alike(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Same epochs and coefficients, and objectives to the last digits, in which BLAS may differ by itself."""
    close = all(np.isclose(a[key], b[key], rtol=1e-13, equal_nan=True) for key in ("primal", "dual"))
    return bool(close) and (a["n_iter"], a["hash"]) == (b["n_iter"], b["hash"])


if __name__ == "__main__":
    main()
