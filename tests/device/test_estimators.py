"""Training with PyTorch reaches the same optimum, certificate and attributes; without a GPU, on its CPU."""

import logging

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import maxmargin.device
from maxmargin import MultiClassSVC, MultiLabelSVC, SparseMultiClassSVC, SparseMultiLabelSVC
from maxmargin.device import backend
from maxmargin.device.backend import basis_demand, find, kernel_demand, rows_demand

torch = pytest.importorskip("torch")
CPU = torch.device("cpu")
GPU = pytest.mark.gpu


def data(n=40, d=3, L=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    Y = (X @ rng.normal(size=(d, L)) + rng.normal(size=(n, L)) > 0).astype(int)
    return X, Y


def correlated(L=4, rank=2):
    A = np.random.default_rng(5).normal(size=(L, rank))
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    return A @ A.T


@pytest.fixture
def gpu(monkeypatch):
    """Without a GPU, let `device="cuda"` mean PyTorch's CPU, with the twins of the Triton programs."""
    if torch.cuda.is_available():
        return
    from tests.naive import device as twins

    monkeypatch.setattr(maxmargin.device, "triton_moves", twins, raising=False)
    for module in ("multilabel.estimator", "structured.multiclass", "sparse.basis_machine"):
        monkeypatch.setattr(
            f"maxmargin.{module}.find",
            lambda wanted, demand, unable="": None if wanted == "cpu" or unable else CPU,
        )


def agree(model, other):
    """Two certified models of one problem: each primal is at least the dual of the other."""
    for a, b in ((model, other), (other, model)):
        assert a.primal_objective_ >= b.dual_objective_ - 1e-9 * abs(b.dual_objective_)
    assert model.duality_gap_ <= model.tol


@pytest.mark.parametrize(
    ("kernel", "prior"),
    [
        ("rbf", None),
        ("poly", np.diag([1.0, 0.5, 2.0, 1.0])),
        ("chi2", correlated()),
        ("precomputed", correlated(rank=4)),
        ("precomputed", None),
    ],
)
def test_multilabel_reaches_the_optimum(gpu, kernel, prior):
    X, Y = data()
    if kernel == "chi2":
        X = np.abs(X)
    if kernel == "precomputed":
        X = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(2))
    given = {"kernel": kernel, "C": 0.5, "prior": prior, "degree": 2, "coef0": 1.0, "random_state": 0}
    here = MultiLabelSVC(tol=1e-5, **given).fit(X, Y)
    model = MultiLabelSVC(tol=1e-3, device="cuda", **given).fit(X, Y)
    agree(model, here)
    assert model.dual_coef_.dtype == np.float64
    assert np.abs(model.decision_function(X) - here.decision_function(X)).max() < 0.2
    assert np.mean(model.predict(X) == here.predict(X)) > 0.97


def test_certificate_is_that_of_the_stored_model(gpu):
    X, Y = data()
    given = {"gamma": 0.4, "C": 2.0, "random_state": 0}
    model = MultiLabelSVC(kernel="rbf", device="cuda", **given).fit(X.astype("f4"), Y)
    rows = X.astype("f4").astype(float)
    K = np.exp(-0.4 * ((rows[:, None] - rows) ** 2).sum(2))
    A = np.zeros((len(X), Y.shape[1]))
    A[model.support_] = model.dual_coef_.T
    F = K @ A + model.intercept_
    primal = 0.5 * np.sum(A * ((K + 1) @ A)) + 2.0 * np.maximum(0, 1 - (2 * Y - 1) * F).sum()
    assert primal == pytest.approx(model.primal_objective_, rel=1e-9)
    assert np.abs(model.dual_coef_).max() <= 2.0
    assert model.dual_objective_ <= primal


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_sparse_rows_weights_and_unknown_entries(gpu, dtype):
    X, Y = data()
    Y = Y.astype(float)
    Y[3, 1] = np.nan
    weights = np.random.default_rng(2).random(len(X)) * 2
    weights[5] = 0
    given = {"kernel": "rbf", "C": 0.5, "class_weight": "balanced", "random_state": 0}
    here = MultiLabelSVC(tol=1e-5, **given).fit(X.astype(dtype), Y, sample_weight=weights)
    model = MultiLabelSVC(device="cuda", **given).fit(sp.csr_array(X.astype(dtype)), Y, sample_weight=weights)
    agree(model, here)


def test_tied_loss(gpu):
    X, Y = data()
    R = np.eye(4) + 0.1 * (np.ones((4, 4)) - np.eye(4))
    here = MultiLabelSVC(kernel="rbf", prior=R, loss="tied", tol=1e-5).fit(X, Y)
    agree(MultiLabelSVC(kernel="rbf", prior=R, loss="tied", device="cuda").fit(X, Y), here)


def sparse_data(n=40, d=30, L=4, dtype="f8"):
    """Rows of very different length, some empty and some dense."""
    rng = np.random.default_rng(4)
    X = sp.random(n, d, 0.2, "csr", rng=rng, dtype=dtype)
    X = sp.vstack([X, sp.csr_array((2, d)), np.tile(rng.normal(size=(1, d)), (2, 1))], format="csr")
    Y = (X @ rng.normal(size=(d, L)) + 0.3 * rng.normal(size=(n + 4, L)) > 0.2).astype(float)
    return X.astype(dtype), Y


@pytest.mark.parametrize(("dtype", "prior"), [("f4", None), ("f8", np.diag([1.0, 0.5, 2.0, 1.0]))])
def test_linear_reaches_the_optimum_on_sparse_rows(gpu, dtype, prior):
    X, Y = sparse_data(dtype=dtype)
    Y[3, 1] = np.nan
    weights = np.random.default_rng(2).random(len(Y)) * 2
    weights[5] = 0
    given = {"C": 2.0, "prior": prior, "class_weight": "balanced", "intercept_scaling": 2.0}
    here = MultiLabelSVC(tol=1e-6, **given).fit(X, Y, sample_weight=weights)
    model = MultiLabelSVC(device="cuda", random_state=0, **given).fit(X, Y, sample_weight=weights)
    agree(model, here)
    assert model.coef_.shape == here.coef_.shape
    assert np.abs(model.decision_function(X) - here.decision_function(X)).max() < 0.2


def test_certificate_of_a_linear_model_is_that_of_the_stored_weights(gpu):
    X, Y = sparse_data()
    model = MultiLabelSVC(C=3.0, device="cuda", random_state=0).fit(X, Y)
    F = X @ model.coef_.T + model.intercept_
    norm = np.sum(model.coef_**2) + np.sum(model.intercept_**2)
    primal = 0.5 * norm + 3.0 * np.maximum(0, 1 - (2 * Y - 1) * F).sum()
    assert primal == pytest.approx(model.primal_objective_, rel=1e-12)
    assert model.dual_objective_ <= primal


def test_linear_continues_in_float64_and_warm_starts(gpu):
    X, Y = sparse_data(L=2)
    given = {"C": 0.5, "device": "cuda", "random_state": 0, "precision": "single"}
    model = MultiLabelSVC(tol=1e-8, warm_start=True, **given).fit(X, Y)
    assert model.duality_gap_ <= 1e-8
    assert model.set_params(tol=1e-4).fit(X, Y).duality_gap_ <= 1e-4


def test_multiclass_reaches_the_optimum(gpu):
    X, _ = data()
    y = np.array(["a", "b", "c", "d"])[(X @ np.random.default_rng(1).normal(size=(3, 4))).argmax(1)]
    costs = 2.0 * (1 - np.eye(4))
    costs[0, 1] = 5
    weights = np.ones(len(y))
    weights[3] = 0
    for given in ({}, {"cost_matrix": costs}, {"loss": "weston_watkins"}):
        here = MultiClassSVC(kernel="rbf", tol=1e-5, **given).fit(X, y, sample_weight=weights)
        model = MultiClassSVC(kernel="rbf", device="cuda", random_state=0, **given).fit(
            X, y, sample_weight=weights
        )
        agree(model, here)
        assert np.mean(model.predict(X) == here.predict(X)) > 0.95


def test_sparse_machines_grow_the_same_basis(gpu):
    """Both devices draw the same candidates and score them alike, so the whole path agrees."""
    X, Y = data(n=90)
    y = np.array(["a", "b", "c"])[(X @ np.random.default_rng(1).normal(size=(3, 3))).argmax(1)]
    weights = np.random.default_rng(2).random(len(X)) * 2
    given = {"C": 2.0, "max_basis": 6, "rel_tol": 0, "random_state": 0, "fit_intercept": True}
    machines = [
        (SparseMultiClassSVC(**given), X, y),
        (SparseMultiClassSVC(**given, selection="sequential"), sp.csr_array(X.astype("f4")), y),
        (SparseMultiLabelSVC(**given), X, Y),
        (SparseMultiLabelSVC(**given, prior=correlated()), X, Y),
        (SparseMultiClassSVC(**given, kernel="precomputed"), np.exp(-((X[:, None] - X) ** 2).sum(2)), y),
    ]
    for machine, rows, answers in machines:
        here = machine.fit(rows, answers, sample_weight=weights)
        model = clone(machine).set_params(device="cuda").fit(rows, answers, sample_weight=weights)
        assert model.duality_gap_ <= model.tol
        np.testing.assert_array_equal(model.basis_indices_, here.basis_indices_)
        assert model.primal_objective_ == pytest.approx(here.primal_objective_, rel=1e-5)
        np.testing.assert_allclose(model.decision_function(rows), here.decision_function(rows), atol=0.01)
        assert len(model.path_) == len(here.path_)


def test_certificate_of_a_sparse_machine_is_that_of_the_stored_coefficients(gpu):
    X, Y = data()
    model = SparseMultiLabelSVC(C=2.0, gamma=0.4, max_basis=8, device="cuda", random_state=0).fit(X, Y)
    K = np.exp(-0.4 * ((X[:, None] - X) ** 2).sum(2))[:, model.basis_indices_]
    al = model.coef_.T
    excess = np.maximum(0, 1 - (2 * Y - 1) * (K @ al))
    primal = 0.5 * np.sum(al * (K[model.basis_indices_] @ al)) + 2.0 * np.sum(excess**2)
    assert primal == pytest.approx(model.primal_objective_, rel=1e-9)


def test_rows_of_the_kernel_matrix_give_the_optimum_of_the_whole_matrix(gpu, monkeypatch):
    X, Y = data()
    whole = MultiLabelSVC(kernel="rbf", device="cuda", random_state=0).fit(X, Y)
    monkeypatch.setattr("maxmargin.device.blocks.SHARE", 0.0)
    strips = MultiLabelSVC(kernel="rbf", device="cuda", random_state=0).fit(X, Y)
    agree(strips, whole)
    assert np.abs(strips.decision_function(X) - whole.decision_function(X)).max() < 0.1


def test_the_mean_of_epochs_is_the_answer_where_its_gap_is_smaller(gpu, monkeypatch):
    from maxmargin.device import multilabel

    answers = []

    def watched(solver):
        certificate = running(solver)
        last = solver._measure(solver.B, solver.T, solver.E, solver.lo, solver.hi)
        answers.append((solver.answer is not solver.B, certificate.gap, last.gap))
        return certificate

    running = multilabel.DeviceSweeps._running
    monkeypatch.setattr(multilabel.DeviceSweeps, "_running", watched)
    monkeypatch.setattr(multilabel, "BLOCK", 16)
    monkeypatch.setattr(multilabel, "ROUNDS", 1)
    X, Y = data(n=96, L=2)
    model = MultiLabelSVC(kernel="rbf", C=5, tol=1e-3, random_state=0, device="cuda").fit(X, Y)
    for mean, gap, last in answers:
        assert gap < last if mean else gap == last
    assert any(mean for mean, _, _ in answers)
    assert model.duality_gap_ <= 1e-3


def test_same_seed_same_answer(gpu):
    X, Y = data()
    a, b = (MultiLabelSVC(kernel="rbf", device="cuda", random_state=7).fit(X, Y) for _ in range(2))
    np.testing.assert_array_equal(a.dual_coef_, b.dual_coef_)
    X, Y = sparse_data()
    a, b = (MultiLabelSVC(device="cuda", random_state=7).fit(X, Y) for _ in range(2))
    np.testing.assert_array_equal(a.coef_, b.coef_)


def test_continues_in_float64_where_rounding_stops_float32(gpu):
    X, Y = data(n=20, L=2)
    given = {"kernel": "rbf", "C": 0.05, "device": "cuda", "precision": "single"}
    assert MultiLabelSVC(tol=1e-8, **given).fit(X, Y).duality_gap_ <= 1e-8


def test_warm_start_and_time_limit(gpu):
    X, Y = data()
    model = MultiLabelSVC(kernel="rbf", device="cuda", warm_start=True, random_state=0).fit(X, Y)
    assert model.fit(X, Y).duality_gap_ <= model.tol
    with pytest.warns(UserWarning, match="time_limit"):
        MultiLabelSVC(kernel="rbf", C=100, tol=1e-9, device="cuda", time_limit=1e-6).fit(X, Y)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu(caplog):
    X, Y = data()
    with pytest.raises(ValueError, match="device='cuda' cannot be used: PyTorch finds no NVIDIA GPU"):
        MultiLabelSVC(kernel="rbf", device="cuda").fit(X, Y)
    with caplog.at_level(logging.INFO, "maxmargin.device"):
        assert MultiLabelSVC(kernel="rbf", device="auto").fit(X, Y).duality_gap_ <= 1e-3
    assert "works on the CPU" in caplog.text


def test_without_torch(monkeypatch):
    monkeypatch.setattr(backend, "installed", lambda: False)
    with pytest.raises(ValueError, match="pip install torch"):
        find("cuda", kernel_demand(10, 2, 3))


@pytest.mark.parametrize(
    ("model", "given"),
    [
        (MultiLabelSVC, {}),
        (MultiLabelSVC, {"kernel": "rbf", "solver": "smo"}),
        (MultiLabelSVC, {"kernel": lambda X, Z: X @ Z.T}),
        (MultiLabelSVC, {"memory_limit": 0}),
        (SparseMultiLabelSVC, {"solver": "sweeps"}),
        (SparseMultiLabelSVC, {"kernel": lambda X, Z: X @ Z.T}),
    ],
)
def test_models_without_gpu_code_are_refused(model, given):
    X, Y = data()
    with pytest.raises(ValueError, match=r"device='cuda' cannot be used: .* Use device='cpu'"):
        model(device="cuda", **given).fit(X, Y)


def test_what_does_not_fit_the_memory_is_refused(monkeypatch):
    demand = kernel_demand(200_000, 252, 100)
    assert demand.wish > 160e9 > 100e9 > demand.least
    monkeypatch.setattr(backend, "_missing", lambda: "")
    monkeypatch.setattr(backend, "free_bytes", lambda device: 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "made up")
    assert rows_demand(59 * 10**6, 781_000, 47_000, 103).least < 12e9
    assert basis_demand(10**6, 50, 10, 100).least < 10e9
    with pytest.raises(ValueError, match=r"200,000 samples .* need .* GiB on the GPU, of which 1.0 GiB"):
        find("cuda", kernel_demand(200_000, 252, 1000))


@GPU
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_prediction_on_the_gpu(monkeypatch):
    X, Y = data(n=300)
    model = MultiLabelSVC(kernel="rbf", random_state=0).fit(X, Y)
    expected = model.decision_function(X)
    monkeypatch.setattr("maxmargin.device.backend.MANY_VALUES", 0)
    np.testing.assert_allclose(model.set_params(device="cuda").decision_function(X), expected, atol=1e-9)


@GPU
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_auto_takes_the_gpu(caplog):
    X, Y = data(n=4000, d=5)
    with caplog.at_level(logging.INFO, "maxmargin.device"):
        model = MultiLabelSVC(kernel="rbf", device="auto", random_state=0).fit(X, Y)
    assert "GiB free" in caplog.text
    agree(model, MultiLabelSVC(kernel="rbf", tol=1e-4, random_state=0).fit(X, Y))
