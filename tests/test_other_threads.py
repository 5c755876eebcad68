"""Threads that fits use, and fits in threads."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from maxmargin import MultiClassSVC

# Nanoseconds of CPU time of all threads but the one that fits. A thread of BLAS that is woken for a product
# of a few microseconds waits for more for a tenth of a second.
SCRIPT = """
import threading, time
from pathlib import Path
import numpy as np, scipy.sparse as sp
from maxmargin import MultiClassSVC, MultiLabelSVC

def others():
    own = str(threading.get_native_id())
    folders = [each for each in Path("/proc/self/task").iterdir() if each.name != own]
    return sum(int((each / "schedstat").read_text().split()[0]) for each in folders)

rng = np.random.default_rng(0)
sparse = sp.random(11_000, 3000, 0.01, "csr", random_state=rng)
dense, wide = rng.normal(size=(11_000, 20)), rng.normal(size=(40, 11_000))
labels, classes = rng.random((11_000, 20)) < 0.1, rng.integers(0, 8, 11_000)
model, X, y = {case}
model.set_params(n_jobs=1, max_iter=3, random_state=0).fit(X, y)
before = None
while before != (before := others()):
    time.sleep(0.2)
model.fit(X, y)
print(others() - before)
"""
CASES = (
    "MultiLabelSVC(), sparse, labels",
    "MultiClassSVC(), sparse, classes",
    "MultiClassSVC(solver='exact'), dense, classes",
    "MultiClassSVC(solver='exact'), wide, classes[:40]",
)


@pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="the CPU time of threads is read from Linux"
)
@pytest.mark.parametrize("case", CASES)
def test_no_thread_but_those_asked_for_computes(case):
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT.replace("{case}", case)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1_000_000


def test_fits_side_by_side_equal_a_fit_alone_and_leave_blas_as_it_was():
    rng = np.random.default_rng(0)
    X, W = rng.normal(size=(3000, 60)), rng.normal(size=(60, 6))
    y = np.argmax(X @ W + rng.normal(size=(3000, 6)), axis=1)
    models = [MultiClassSVC(random_state=0) for _ in range(8)]
    with threadpool_limits(2, "blas"):
        alone = MultiClassSVC(random_state=0).fit(X, y)
        before = [library["num_threads"] for library in threadpool_info()]
        callers = [threading.Thread(target=model.fit, args=(X, y)) for model in models]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        assert [library["num_threads"] for library in threadpool_info()] == before
    for model in models:
        np.testing.assert_array_equal(model.coef_, alone.coef_)


# Matrices so large that BLAS shares their products among its threads.
FITS = """
import hashlib, sys
import numpy as np, scipy.sparse as sp
import maxmargin as mm
from maxmargin import baselines, priors

rng = np.random.default_rng(0)

def made(n, d, L):
    X, W = rng.integers(-9, 10, (n, d)) / 8, rng.integers(-9, 10, (d, L)) / 8
    S = X @ W + d**0.5 / 4 * rng.integers(-9, 10, (n, L))  # exact, whatever the order of the sums
    return X, (S > d**0.5).astype(int), np.argmax(S, axis=1)

X, Y, y = made(3000, 200, 6)
A, B, b = made(2000, 30, 6)
K = np.minimum(A[:, None], A[None]).sum(axis=-1) / 8 + 60
_, Many, _ = made(3000, 200, 200)
linked, short = priors.from_labels, {"lengths": np.full(400, 5)}
fits = {
    "labels": (mm.MultiLabelSVC(max_iter=9), X, Y),
    "labels, prior": (mm.MultiLabelSVC(prior=linked, max_iter=9), X, Y),
    "labels, large prior": (mm.MultiLabelSVC(prior=linked, max_iter=2), X, Many),
    "labels, squared hinge": (mm.MultiLabelSVC(loss="squared_hinge", max_iter=9), X, Y),
    "labels, kernel": (mm.MultiLabelSVC(kernel="rbf"), A, B),
    "labels, kernel, prior": (mm.MultiLabelSVC(kernel="rbf", prior=linked), A, B),
    "labels, kernel matrix": (mm.MultiLabelSVC(kernel="precomputed", max_iter=9), K, B),
    "classes": (mm.MultiClassSVC(max_iter=40), X, y),
    "classes, newton": (mm.MultiClassSVC(solver="newton", max_iter=9), A, b),
    "classes, kernel": (mm.MultiClassSVC(kernel="rbf"), A, b),
    "classes, kernel rows": (mm.MultiClassSVC(kernel="rbf", cache_size=1, max_iter=3), A, b),
    "classes, kernel matrix": (mm.MultiClassSVC(kernel="precomputed", max_iter=9), K, b),
    "sequences": (mm.ChainSVC(max_iter=3), A, b, short),
    "bags": (mm.LatentSVC(max_iter=2), A, b[::5], short),
    "ranking": (mm.LabelRanker(), A, B),
    "sparse classes": (mm.SparseMultiClassSVC(max_basis=9), A, b),
    "sparse classes, learned": (mm.SparseMultiClassSVC(max_basis=3, basis="learned"), A, b),
    "sparse labels": (mm.SparseMultiLabelSVC(max_basis=9, prior=linked), A, B),
    "submodular": (mm.SubmodularSVC(C=0.1, max_iter=4), A, B),
    "one basis a class": (baselines.SparseOneVsRest(max_basis=5), A, b),
    "probabilities": (mm.Calibrated(mm.MultiClassSVC(max_iter=9), cv=2), X, (y > 2).astype(int)),
    "thresholds": (baselines.ThresholdTuner(mm.MultiLabelSVC(max_iter=9), cv=2), X, Y),
    "sets": (mm.LabelSets(mm.MultiLabelSVC(kernel="rbf"), recall=0.9), A, B),
}

def arrays(model):
    for name, value in sorted(vars(model).items()):
        if name.startswith(("estimator_", "curves_")):
            yield from arrays(value)
        elif isinstance(value, np.ndarray) and value.dtype.kind in "fi":
            yield value

for name, (model, rows, labels, *cut) in fits.items():
    for each in (model, model.get_params().get("estimator")):
        if hasattr(each, "n_jobs"):
            each.n_jobs = int(sys.argv[1])
    model.fit(rows, labels, **(cut[0] if cut else {}))
    digest = hashlib.sha256()
    for value in arrays(model):
        digest.update(value.tobytes())
    print(name, digest.hexdigest(), sep=": ")
"""


def bits(blas_threads, n_jobs, **settings):
    """The bits of every model that a process with so many threads fits."""
    names = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FITS, str(n_jobs)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **dict.fromkeys(names, str(blas_threads)), **settings},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_number_of_threads_does_not_change_the_model():
    assert bits(3, 2) == bits(1, 1)


@pytest.mark.slow
def test_loops_from_the_cache_compute_what_newly_compiled_ones_do(tmp_path):
    settings = {"NUMBA_CACHE_DIR": str(tmp_path)}
    assert bits(1, 1, **settings) == bits(1, 1, **settings)
