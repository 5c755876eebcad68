"""Records hold the best bounds known, and a fit that ends at one returns a model that keeps its promise."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import maxmargin

RNG = np.random.default_rng(3)
N, D = 60, 12
X = np.abs(RNG.normal(size=(N, D)))
SCORES = X @ RNG.normal(size=(D, 3)) + RNG.normal(size=(N, 3))
SCORES -= SCORES.mean(axis=0)
Y, CODES = (SCORES > 0).astype(int), SCORES.argmax(axis=1)
LENGTHS = np.full(N // 3, 3)
# Estimator -> what is learnt and how rows are cut.
DATA = {
    "MultiClassSVC": (CODES, {}),
    "MultiLabelSVC": (Y, {}),
    "ChainSVC": (CODES, {"lengths": LENGTHS}),
    "LatentSVC": (CODES[::3], {"lengths": LENGTHS}),
    "SubmodularSVC": (Y, {}),
    "LabelRanker": (Y, {}),
    "SparseMultiClassSVC": (CODES, {}),
    "SparseMultiLabelSVC": (Y, {}),
}
# Further parameters, and the solvers that take them.
MORE = {
    "MultiClassSVC": [
        ({"kernel": "rbf"}, {"auto", "exact", "bcfw", "bcpl", "oeg", "fw", "pl", "eg"}),
        ({"loss": "weston_watkins"}, {"auto", "exact"}),
    ],
    "MultiLabelSVC": [
        ({"kernel": "rbf"}, {"auto", "smo"}),
        ({"prior": maxmargin.priors.from_labels}, {"auto", "dca", "smo", "newton"}),
        ({"memory_limit": 0.0}, {"auto"}),
        ({"loss": "squared_hinge"}, {"auto"}),
    ],
    "LabelRanker": [({"regulariser": "entropy"}, {"auto"})],
}


def cases():
    for name in DATA:
        words = getattr(maxmargin, name)._parameter_constraints.get("solver")
        for solver in sorted(words[0].options) if words else [None]:
            chosen = {} if solver is None else {"solver": solver}
            for more, solvers in [({}, {solver}), *MORE.get(name, [])]:
                if solver in solvers:
                    yield name, {**chosen, **more}


class Watch:
    """Collects the records, and stops the fit after some of them."""

    def __init__(self, stop=None):
        self.stop, self.records = stop, []

    def setup(self, estimator, context): ...

    def teardown(self, estimator, context): ...

    def on_fit_task_begin(self, estimator, context): ...

    def on_fit_task_end(self, estimator, context):
        if context.task_name != "epoch":
            return False
        self.records.append(context.record)
        return len(self.records) == self.stop


def fitted(name, params, watch):
    y, cut = DATA[name]
    model = getattr(maxmargin, name)(C=10.0, **params)
    if name.startswith("Sparse"):
        model.set_params(max_basis=5, n_candidates=5)
    if "max_iter" in model.get_params():
        model.set_params(max_iter=30, tol=1e-4)
    if "random_state" in model.get_params():
        model.set_params(random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.set_callbacks(watch).fit(X, y, **cut)


@pytest.mark.parametrize(("name", "params"), list(cases()))
def test_bounds_only_improve_and_the_model_keeps_them(name, params):
    watch = Watch()
    model = fitted(name, params, watch)
    watched = [vars(record) for record in watch.records]
    for records in (model.history_, watched):
        primal, dual, gap = (np.array([r[key] for r in records]) for key in ("primal", "dual", "gap"))
        assert (primal[1:] <= primal[:-1]).all()
        if not name.startswith(("Latent", "Sparse")):  # whose bounds are those of a round, of a basis
            assert (dual[1:] >= dual[:-1]).all()
            assert (gap[1:] <= gap[:-1] + 1e-12).all()
    last = model.history_[-1]
    assert (last["primal"], last["gap"]) == (model.primal_objective_, model.duality_gap_)
    assert last["dual"] == model.dual_objective_
    for stop in {len(watched) // 3, 2 * len(watched) // 3} - {0}:
        watch = Watch(stop)
        model = fitted(name, params, watch)
        # Running values are rounded, in single precision for some.
        assert model.primal_objective_ <= watch.records[-1].primal * (1 + 1e-5)
        assert model.duality_gap_ <= watch.records[-1].gap + 1e-5
