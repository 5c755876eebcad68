"""`maxmargin warmup`."""

from __future__ import annotations

import pytest

from maxmargin._names import ESTIMATORS
from maxmargin.cli import main
from maxmargin.cli.warmup import FEW, WARMED, fit_a_little, solver_names, variants

# Two epochs call the loops of a solver as well as seventy, which take a minute as plain Python.
SHORT = {"max_iter": 2, "max_basis": 2, "tol": 0.1}


def test_warmup_shares_families_out(capsys):
    assert main(["warmup", "--defaults", "--jobs", "2", "sparse-multilabel", "sparse-multiclass"]) == 0
    assert "Ready: sparse-multiclass, sparse-multilabel" in capsys.readouterr().out


def test_warmup_fits_what_it_is_told(capsys):
    assert main(["warmup", "sparse-multilabel"]) == 0
    assert "Ready: sparse-multilabel" in capsys.readouterr().out
    assert main(["warmup", "spam"]) == 2


def test_warmup_knows_every_estimator():
    """StreamRanker learns through LabelRanker's loops."""
    assert {estimator for estimator, _ in WARMED.values()} == set(ESTIMATORS) - {"StreamRanker"}


@pytest.mark.nojit
# Compiling every solver of chains by itself takes most of a minute.
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name == "chain" else []) for name in WARMED]
)
def test_warmup_fits_every_solver(name):
    estimator, task = WARMED[name]
    solvers = {
        params["solver"]
        for params in variants(estimator)
        if fit_a_little(estimator, task, params, FEW[:1], settings=SHORT)
    }
    assert solvers == set(solver_names(estimator)) != set()


@pytest.mark.nojit
def test_the_warmup_of_bags_changes_their_candidates(monkeypatch):
    from maxmargin.structured import latent_rounds

    seen, products = [], latent_rounds.pair_products
    monkeypatch.setattr(latent_rounds, "pair_products", lambda *given: (seen.append(1), products(*given)))
    fit_a_little("LatentSVC", "bags", {}, FEW[:1], ["float64"], {"max_iter": 15})
    assert seen


def test_a_fault_is_not_taken_for_a_refusal(monkeypatch):
    import maxmargin

    def fit(self, X, y):
        raise ValueError("the moon is full")

    monkeypatch.setattr(maxmargin.SubmodularSVC, "fit", fit)
    with pytest.raises(ValueError, match="moon"):
        fit_a_little("SubmodularSVC", "multilabel", {"solver": "bcfw"})
