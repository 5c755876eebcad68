"""Races on a GPU.

animals  all training images of Animals with Attributes, RBF: C = .01, .1, 1; with a prior of rank 10
letter   MultiClassSVC with RBF, both losses
linear   sparse rows like text, 103 labels; the CPU with two threads
sparse   SparseMultiClassSVC and SparseMultiLabelSVC, generated data, 100 basis vectors
growth   generated data: samples, labels and C
predict  scores of 10^6 rows against 10^4 support vectors, in floating point operations per second
large    200,000 samples x 100 labels, kernel values computed by rows

All stop at a certified relative gap of 1e-3. "gradient" is an accelerated projected gradient method on all
labels at once in PyTorch, on the same device; "cpu" is the same estimator on the CPU; "SVC" is scikit-learn's
on the first labels, with its time scaled to all. The first fit, which compiles, is not timed. A fit of more
than a minute (sparse: 40 seconds, growth: ten) is stopped, and its row has the gap reached. Results:
gpu_<race>.csv and gpu_growth.png.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.svm import SVC

from benchmarks.problems.multilabel import generated
from benchmarks.race import Panel, Row, Setting, lines, plot, save
from maxmargin import MultiClassSVC, MultiLabelSVC, SparseMultiClassSVC, SparseMultiLabelSVC, datasets
from maxmargin.core.kernels import Kernel
from maxmargin.core.loop import Certificate
from maxmargin.device.backend import installed, kernel_in_kind

TOL = 1e-3
# Seconds after which a competitor is stopped; its row then has the gap reached.
LIMIT = 60.0


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of the second run, and its answer; of the first where that took half of the limit."""
    for _ in range(2):
        started = time.perf_counter()
        answer = work()
        seconds = time.perf_counter() - started
        if seconds > LIMIT / 2:
            break
    return seconds, answer


def fitted(kind: type, X: np.ndarray, y: np.ndarray, limit: float = LIMIT, **given: Any) -> Row:
    model = kind(**{"kernel": "rbf", "tol": TOL, "random_state": 0, "time_limit": limit} | given)
    seconds, model = timed(lambda: model.fit(X, y))
    return {
        "seconds": round(seconds, 3),
        "epochs": model.n_iter_,
        "gap": f"{model.duality_gap_:.2e}",
        "primal": f"{model.primal_objective_:.8g}",
    }


def gradient(X: np.ndarray, Y: np.ndarray, C: float) -> Row:
    """Accelerated projected gradient ascent on the dual of all labels at once; restarts when it falls."""
    import torch

    from maxmargin.device.numerics import kernel_block, to_device

    device = torch.device("cuda")

    def solve() -> tuple[int, Certificate]:
        kernel = Kernel.of(X, "rbf", offset=1.0)
        rows = to_device(X, device, torch.float32)
        K = kernel_block(kernel, rows, rows)
        S = torch.from_numpy(np.where(Y > 0, 1.0, -1.0).T.copy()).to(device, torch.float32)
        v = torch.ones(len(K), 1, device=device)
        for _ in range(20):
            v = K @ v
            size = float(v.norm())
            v /= size
        A, Z, t = torch.zeros_like(S), torch.zeros_like(S), 1.0
        best, started, count = -np.inf, time.perf_counter(), 0
        while True:
            count += 1
            new = torch.clamp(Z + (1 - S * ((Z * S) @ K)) / size, 0, C)
            after = (1 + (1 + 4 * t * t) ** 0.5) / 2
            Z, A, t = new + (t - 1) / after * (new - A), new, after
            if count % 20 == 0:
                F = (A * S) @ K
                norm = 0.5 * float(((A * S) * F).sum(dtype=torch.float64))
                dual = float(A.sum(dtype=torch.float64)) - norm
                found = Certificate(
                    norm + C * float(torch.clamp(1 - S * F, min=0).sum(dtype=torch.float64)), dual
                )
                if dual < best:
                    Z, t = A, 1.0
                best = max(best, dual)
                if found.gap <= TOL or time.perf_counter() - started > LIMIT:
                    return count, found

    seconds, (count, found) = timed(solve)
    return {
        "seconds": round(seconds, 3),
        "epochs": count,
        "gap": f"{found.gap:.2e}",
        "primal": f"{found.primal:.8g}",
    }


def made(n: int, L: int, d: int = 50) -> tuple[np.ndarray, np.ndarray]:
    """Rows around 40 centres; labels are signs of noisy smooth functions."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, d))[rng.integers(40, size=n)] + rng.normal(size=(n, d))
    Y = np.tanh(X @ rng.normal(size=(d, 60)) / d**0.5) @ rng.normal(size=(60, L))
    return X.astype(np.float32), (Y + rng.normal(size=Y.shape) > 3).astype(np.int8)


def places(setting: Setting) -> list[str]:
    """The devices to race on."""
    if setting.small or not installed():
        return ["cpu"]
    import torch

    return ["cuda", "cpu"] if torch.cuda.is_available() else ["cpu"]


def animals(setting: Setting) -> None:
    if setting.small:
        X, Y = made(200, 5)
        S = Y[:50]
    else:
        data = datasets.load("awa1")
        X, Y, S = data.X[data.train], data.Y[data.train], data.extras["signatures"]
    R = np.corrcoef(2.0 * S.T - 1)
    values, vectors = np.linalg.eigh(R)
    R = (vectors[:, -10:] * values[-10:]) @ vectors[:, -10:].T
    R /= np.sqrt(np.outer(np.diag(R), np.diag(R)))
    rows: list[Row] = []
    for device in places(setting):
        for C in (0.01, 0.1, 1.0):
            found = fitted(MultiLabelSVC, X, Y, C=C, device=device, cache_size=4000, n_jobs=-1)
            rows.append({"solver": device, "C": C, "prior": "none"} | found)
            if device == "cuda":
                rows.append({"solver": "gradient", "C": C, "prior": "none"} | gradient(X, Y, C))
        rows.append(
            {"solver": device, "C": 0.1, "prior": "rank 10"}
            | fitted(MultiLabelSVC, X, Y, C=0.1, prior=R, device=device, cache_size=4000, n_jobs=-1)
        )
    rows.append({"solver": "SVC", "C": 0.1, "prior": "none"} | by_label(X, Y, 0.1, labels=1))
    save(setting, "gpu_animals", rows)


def by_label(X: np.ndarray, Y: np.ndarray, C: float, labels: int) -> Row:
    """Seconds of scikit-learn's SVC on all labels, from those on the first ones."""
    started = time.perf_counter()
    for on in Y.T[:labels]:
        SVC(C=C, cache_size=4000).fit(X, on)
    return {
        "seconds": round((time.perf_counter() - started) / labels * Y.shape[1], 1),
        "epochs": "",
        "gap": "",
        "primal": "",
    }


def letter(setting: Setting) -> None:
    if setting.small:
        X, Y = made(200, 4)
        y, n = Y.argmax(axis=1), 150
    else:
        data = datasets.load("letter")
        X, y, n = data.X, data.y, 16_000
    X = (X - X[:n].mean(axis=0)) / X[:n].std(axis=0)
    rows: list[Row] = []
    for loss in ("crammer_singer", "weston_watkins"):
        for device in places(setting):
            row = fitted(MultiClassSVC, X[:n], y[:n], device=device, loss=loss, cache_size=4000)
            rows.append({"solver": device, "loss": loss, "n": n} | row)
    save(setting, "gpu_letter", rows)


def linear(setting: Setting) -> None:
    rows: list[Row] = []
    for n in (300,) if setting.small else (50_000, 200_000, 781_265):
        problem = generated(n, d=500, nnz=10, labels=5) if setting.small else generated(n)
        for device in places(setting):
            found = fitted(MultiLabelSVC, problem.X, problem.Y, kernel="linear", device=device, n_jobs=2)
            rows.append({"solver": device, "n": n} | found)
    save(setting, "gpu_linear", rows)


def sparse(setting: Setting) -> None:
    rows: list[Row] = []
    for n in (300,) if setting.small else (20_000, 100_000, 500_000):
        X, Y = made(n, 10)
        for kind, answers in ((SparseMultiClassSVC, Y.argmax(axis=1)), (SparseMultiLabelSVC, Y)):
            for device in places(setting) if n < 500_000 else places(setting)[:1]:
                grown = {"max_basis": 10 if setting.small else 100, "rel_tol": 0}
                found = fitted(kind, X, answers, 40.0, tol=1e-6, device=device, **grown)
                rows.append({"solver": device, "machine": kind.__name__, "n": n} | found)
    save(setting, "gpu_sparse", rows)


def growth(setting: Setting) -> None:
    rows: list[Row] = []
    usual = (200, 5, 0.1) if setting.small else (16_000, 64, 0.1)
    sizes = {"n": (100, 200), "labels": (3, 5), "C": (0.1, 1.0)}
    if not setting.small:
        sizes = {"n": (4000, 8000, 16_000, 32_000, 64_000), "labels": (16, 64, 256), "C": (0.01, 0.1, 1.0)}
    for device in places(setting):
        for k, (name, values) in enumerate(sizes.items()):
            for value in values:
                n, L, C = (*usual[:k], value, *usual[k + 1 :])
                X, Y = made(int(n), int(L))
                found = fitted(MultiLabelSVC, X, Y, 10.0, C=C, device=device, cache_size=4000, n_jobs=-1)
                rows.append({"solver": device, "over": name, "n": n, "labels": L, "C": C} | found)
    save(setting, "gpu_growth", rows)
    panels = [Panel(name, "seconds", lines(rows, name, "seconds", "solver", over=name)) for name in sizes]
    plot(setting, "gpu_growth", [panels])


def predict(setting: Setting) -> None:
    device = places(setting)[0]
    n, m, d, L = (1000, 100, 20, 5) if setting.small else (10**6, 10**4, 256, 85)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)).astype(np.float32)
    basis, B = rng.normal(size=(m, d)).astype(np.float32), rng.normal(size=(m, L)).astype(np.float32)
    kernel = Kernel.of(basis, "rbf")

    if device == "cuda":
        import torch

        rows = torch.from_numpy(X).to(device)

        def work() -> float:
            return float(kernel_in_kind(rows, kernel, basis, B)[-1, -1])
    else:

        def work() -> float:
            return float(kernel.scores(X, basis, B)[-1, -1])

    seconds, _ = timed(work)
    operations = 2.0 * n * m * (d + L)
    rows: list[Row] = [
        {"device": device, "seconds": round(seconds, 4), "tflops": round(operations / seconds / 1e12, 2)}
    ]
    save(setting, "gpu_predict", rows)


def large(setting: Setting) -> None:
    n, L = (300, 5) if setting.small else (200_000, 100)
    X, Y = made(n, L)
    rows: list[Row] = []
    for device in places(setting)[:1]:
        rows.append(
            {"solver": device, "n": n, "labels": L, "C": 0.1}
            | fitted(MultiLabelSVC, X, Y, C=0.1, device=device)
        )
    save(setting, "gpu_large", rows)


RACES = {
    "animals": animals,
    "letter": letter,
    "linear": linear,
    "sparse": sparse,
    "growth": growth,
    "predict": predict,
    "large": large,
}
