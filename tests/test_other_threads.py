"""Threads that fits use, and fits in threads."""

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


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="Linux tells the time of threads")
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
