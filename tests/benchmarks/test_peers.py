"""Adapters: imported without their peer, and, where it is installed, right on a small problem."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil

import numpy as np
import pytest

from benchmarks import peers
from benchmarks.peers import ours
from benchmarks.problems import kernel_multilabel, multiclass, multilabel, ranking, submodular


def adapter(name):
    """An adapter, or a skipped test where its peer is not installed."""
    module = importlib.import_module(f"benchmarks.peers.{name}")
    for needed in getattr(module, "NEEDS", ()):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")
    return module


@pytest.mark.parametrize("name", [module.name for module in pkgutil.iter_modules(peers.__path__)])
def test_adapters_are_imported_without_their_peer(name):
    assert importlib.import_module(f"benchmarks.peers.{name}").__doc__


@pytest.mark.parametrize("name", ["linearsvc", "libmultilabel", "nothing"])
def test_multilabel_weights_have_our_objective(name):
    problem = multilabel.toy()
    best = problem.primal(*ours.multilabel_weights(problem, 1e-3))
    found = problem.primal(*adapter(name).multilabel_weights(problem, 1e-3))
    assert (found > 1.1 * best) if name == "nothing" else (found == pytest.approx(best, rel=2e-3))


@pytest.mark.parametrize("name", ["linearsvc", "liblinear_official", "nothing"])
def test_multiclass_weights_have_our_objective_and_print_their_dual(name):
    problem = multiclass.dense(250)
    peer = adapter(name)
    best = problem.primal(ours.multiclass_weights(problem, 1e-3))
    found = problem.primal(peer.multiclass_weights(problem, 1e-3))
    if name == "nothing":
        assert found > 1.1 * best
        return
    assert found == pytest.approx(best, rel=2e-3)
    weights, dual = multiclass.with_dual(peer.multiclass_weights, problem, 1e-3)
    assert 0.99 * best < dual <= problem.primal(weights)


@pytest.mark.parametrize("name", ["ours", "svc", "libsvm_official", "nothing"])
def test_the_gap_of_kernel_coefficients_is_small_for_those_who_fit(name):
    problem, peer = kernel_multilabel.toy(300, 8), adapter(name)
    gap = problem.gap(*peer.kernel_coefficients(problem, peer.fit_kernel(problem)))
    assert gap == 1 if name == "nothing" else 0 <= gap < 1e-3


@pytest.mark.parametrize("name", ["ours", "sgd", "river", "vowpalwabbit", "nothing"])
def test_learners_answer_every_round(name):
    X, y = ranking.synthetic(150, 10, 3)
    seconds, wrong = adapter(name).learn(X, y, 3)
    assert seconds > 0 and np.asarray(wrong).shape == (150,)
    assert 0 < np.mean(wrong) < 1


def test_cuts_agree_with_pymaxflow():
    index, weight, scores = submodular.instance(8, 0.5, 30)
    answers = ours.cut(scores, ours.graph(8, index, weight)) > 0
    assert answers.any() and not answers.all()
    np.testing.assert_array_equal(answers, adapter("pymaxflow").cut(scores, index, weight))
