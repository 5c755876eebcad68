"""Small problems: fits and answers by default parameters compile nothing, and leave nothing behind."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from maxmargin import LabelRanker, MultiLabelSVC, StreamRanker
from maxmargin.core import jit

pytestmark = pytest.mark.skipif(not jit.ON, reason="nothing is compiled")
PROGRAM = """
import json, sys
import numpy as np
from sklearn.datasets import load_breast_cancer, load_iris, load_wine, make_multilabel_classification
from sklearn.preprocessing import StandardScaler
import maxmargin as mm
from maxmargin.core.jit import Entry

def compiled():
    modules = [module for name, module in sys.modules.items() if name.startswith("maxmargin")]
    entries = [value for module in modules for value in vars(module).values() if isinstance(value, Entry)]
    return sorted({entry.__qualname__ for entry in entries if entry.machine.signatures})

X, Y = make_multilabel_classification(40, 20, n_classes=5, random_state=0)
X, y = StandardScaler().fit_transform(X), (X[:, :3] / X[:, :3].std(axis=0)).argmax(axis=1)
found = {}
def note(name, model, X, y, **lengths):
    model.fit(X, y, **lengths).predict(X, **lengths)
    found[name] = compiled()

for kernel in ("linear", "rbf"):
    note(f"labels {kernel}", mm.MultiLabelSVC(kernel=kernel), X, Y)
    note(f"classes {kernel}", mm.MultiClassSVC(kernel=kernel), X, y)
note("chains", mm.ChainSVC(), X, y, lengths=[5] * 8)
note("bags", mm.LatentSVC(), X, y[::4], lengths=[4] * 10)
note("ranker", mm.LabelRanker(), X, Y)
note("sets", mm.SubmodularSVC(), X, Y)
note("sparse labels", mm.SparseMultiLabelSVC(), X, Y)
note("sparse classes", mm.SparseMultiClassSVC(), X, y)
stream = mm.StreamRanker()
for row, label in zip(X, y):
    stream.learn_one(dict(enumerate(row[:3].tolist())), int(label))
stream.predict_one(dict(enumerate(X[0, :3].tolist())))
found["stream"] = compiled()
for load in (load_iris, load_wine, load_breast_cancer):
    X, y = load(return_X_y=True)
    for name, rows in {"raw": X, "scaled": StandardScaler().fit_transform(X)}.items():
        note(f"{load.__name__} {name}, classes", mm.MultiClassSVC(), rows, y)
        note(f"{load.__name__} {name}, labels", mm.MultiLabelSVC(), rows, y)
rng = np.random.default_rng(0)
for n, d, c in [(214, 9, 6), (846, 18, 4), (40, 100, 3)]:
    for loss in ("crammer_singer", "weston_watkins"):
        note(f"{n} rows, {loss}", mm.MultiClassSVC(loss=loss), rng.normal(size=(n, d)), np.arange(n) % c)
X = rng.normal(size=(300, 20))
Y = X[:, :6] + rng.normal(size=(300, 6)) > 0
note("300 rows, labels rbf", mm.MultiLabelSVC(kernel="rbf"), X, Y)
note("300 rows, classes rbf", mm.MultiClassSVC(kernel="rbf"), X, Y.argmax(axis=1))
X = rng.random(size=(1500, 103)) / 20
Y = X[:, :14] + rng.normal(size=(1500, 14)) / 40 > 0.02
note("1500 rows of short features, labels", mm.MultiLabelSVC(), X, Y)
print(json.dumps(found))
"""


def test_small_problems_compile_nothing(tmp_path):
    """In a new process, with an empty cache."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) > 20 and not any(found.values()), found
    assert not list(tmp_path.rglob("*.nbi"))


def test_a_small_fit_leaves_later_calls_to_machine_code():
    X, y = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 3
    stream = StreamRanker()
    for fit in (
        lambda: MultiLabelSVC(kernel="rbf").fit(X, y).predict(X),
        lambda: LabelRanker().partial_fit(X, y).predict(X),
        lambda: stream.learn_one({"a": 1.0}, "b").predict_one({"a": 1.0}),
    ):
        fit()
        assert jit._interpreted.get() is None
