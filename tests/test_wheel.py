"""The wheel with machine code: a fresh process of what it installs compiles nothing."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Estimator, parameters, labels, and what X is; the sizes are larger than those of the warm-up.
FITS = [
    ("MultiLabelSVC", {}, "Y", "f8"),
    ("MultiLabelSVC", {}, "Y", "f4"),
    ("MultiLabelSVC", {}, "Y", "csr"),
    ("MultiLabelSVC", {}, "Y", "wide"),
    ("MultiLabelSVC", {}, "Y", "words"),
    ("MultiLabelSVC", {"memory_limit": 0}, "Y", "words"),
    ("MultiLabelSVC", {"precision": "single"}, "Y", "f8"),
    ("MultiLabelSVC", {"prior": "labels"}, "Y", "f8"),
    ("MultiLabelSVC", {"prior": "labels"}, "Y", "broad"),
    ("MultiLabelSVC", {"kernel": "rbf"}, "Y", "f8"),
    ("MultiLabelSVC", {"kernel": "rbf", "prior": "labels"}, "Y", "f8"),
    ("MultiLabelSVC", {"kernel": "poly"}, "Y", "f4"),
    ("MultiLabelSVC", {"loss": "squared_hinge"}, "Y", "f8"),
    ("MultiLabelSVC", {"loss": "squared_hinge"}, "Y", "words"),
    ("MultiClassSVC", {}, "c", "f8"),
    ("MultiClassSVC", {"C": 1e-3}, "c", "csr"),
    ("MultiClassSVC", {}, "many", "f4"),
    ("MultiClassSVC", {}, "many", "words"),
    ("MultiClassSVC", {"kernel": "rbf"}, "many", "f8"),
    ("MultiClassSVC", {"loss": "weston_watkins"}, "c", "f8"),
    ("LatentSVC", {}, "bags", "f8"),
    ("LatentSVC", {}, "bags", "csr"),
    ("ChainSVC", {}, "chains", "f8"),
    ("ChainSVC", {}, "chains", "csr"),
    ("ChainSVC", {}, "chains", "f4"),
    ("LabelRanker", {}, "Y", "csr"),
    ("LabelRanker", {"weighting": "idf"}, "Y", "csr"),
    ("LabelRanker", {"regulariser": "entropy"}, "Y", "f8"),
    ("SparseMultiClassSVC", {"max_basis": 10}, "c", "f8"),
    ("SparseMultiClassSVC", {"max_basis": 20}, "many", "f8"),
    ("SparseMultiClassSVC", {"max_basis": 5, "basis": "learned"}, "c", "f8"),
    ("SparseMultiLabelSVC", {"max_basis": 10}, "Y", "f4"),
    ("SparseMultiLabelSVC", {"max_basis": 5, "basis": "learned"}, "Y", "f8"),
    ("SubmodularSVC", {"tol": 0.1}, "Y", "f8"),
]
PROGRAM = """
import json, sys, time
import numpy as np, scipy.sparse as sp, sklearn.base, warnings
start = time.process_time()
import maxmargin
from maxmargin.cli.families import build
from numba.core import event
warnings.simplefilter("ignore")
compiled = []
class Listener(event.Listener):
    def on_start(self, event):
        compiled.append(event.data["dispatcher"].py_func.__qualname__)
    def on_end(self, event):
        pass
event.register("numba:compile", Listener())
name, params, labels, kind = json.loads(sys.argv[1])
rng = np.random.default_rng(0)
shape, filled = {"words": ((600, 500), 0.05), "broad": ((600, 100), 0.7)}.get(kind, ((600, 12), 0.7))
X = rng.random(shape) * (rng.random(shape) < filled)
X = {"f4": X.astype(np.float32), "f8": X, "broad": X}.get(kind, sp.csr_array(X))
if kind == "wide":
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
codes = np.arange(600) % (26 if labels in ("many", "chains") else 4)
y = {"Y": (rng.random((600, 7)) < 0.3).astype(int), "bags": codes[:150]}.get(labels, codes)
cut = {"lengths": np.full(150, 4)} if labels in ("bags", "chains") else {}
model = build(name, **params)
if "max_iter" in model.get_params():
    model.set_params(max_iter=20)
model.fit(X, y, **cut).predict(X, **cut)
if hasattr(model, "predict_top"):
    model.predict_top(X, 3)
print(json.dumps([maxmargin.__file__, compiled, time.process_time() - start]))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder into which the wheel was installed."""
    spec = importlib.util.spec_from_file_location("wheel", ROOT / "tools" / "wheel.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    folder = tmp_path_factory.mktemp("wheel")
    wheel = tool.build(folder / "dist", [])
    assert "-none-any" not in wheel.name
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*install, str(folder / "site"), str(wheel)], check=True)
    prebuilt = list((folder / "site" / "maxmargin" / "_prebuilt").iterdir())
    assert 0 < sum(entry.stat().st_size for entry in prebuilt) < 20e6
    return folder / "site"


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
@pytest.mark.parametrize("fit", FITS, ids=lambda fit: "-".join(map(str, fit)))
def test_a_fresh_process_of_the_wheel_compiles_nothing(site, tmp_path, fit):
    environment = os.environ | {"PYTHONPATH": str(site), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", PROGRAM, json.dumps(fit)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    where, compiled, seconds = json.loads(done.stdout)
    print(f"imports, fit and predictions: {seconds:.2f} s of process time")
    assert where.startswith(str(site)) and not compiled
    assert not list(tmp_path.rglob("*.loop"))
