"""Predictions for arrays of PyTorch and CuPy are arrays of the same library, with array_api_dispatch.

SciPy reads SCIPY_ARRAY_API when it is imported, so the tests run in a process of their own.
"""

import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest
import sklearn

from maxmargin import MultiClassSVC, MultiLabelSVC, SparseMultiClassSVC, SparseMultiLabelSVC

torch = pytest.importorskip("torch")
ENABLED = os.environ.get("SCIPY_ARRAY_API") == "1"
inside = pytest.mark.skipif(not ENABLED, reason="run by test_in_a_process_with_scipy_array_api")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CUPY = DEVICE == "cuda" and importlib.util.find_spec("cupy") is not None


@pytest.mark.skipif(ENABLED, reason="this is that process")
def test_in_a_process_with_scipy_array_api():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", __file__],
        env={**os.environ, "SCIPY_ARRAY_API": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert f"{9 if CUPY else 5} passed" in done.stdout


def data(n=40, d=3, L=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    Y = (X @ rng.normal(size=(d, L)) + rng.normal(size=(n, L)) > 0).astype(int)
    return X, Y


@inside
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_predictions_for_tensors_are_tensors(kernel, dtype):
    X, Y = data()
    model = MultiLabelSVC(kernel=kernel, random_state=0).fit(X, Y)
    classes = MultiClassSVC(kernel=kernel, random_state=0).fit(X, Y.argmax(1))
    T = torch.from_numpy(X).to(DEVICE, dtype)
    few = SparseMultiClassSVC(kernel=kernel, random_state=0).fit(X, Y.argmax(1))
    some = SparseMultiLabelSVC(kernel=kernel, random_state=0).fit(X, Y)
    moved = SparseMultiClassSVC(max_basis=4, basis="learned", random_state=0).fit(X, Y.argmax(1))
    assert moved.metric_ is not None and moved.spread_ is not None
    with sklearn.config_context(array_api_dispatch=True):
        for each in (model, classes, few, some, moved):
            scores, answer = each.decision_function(T), each.predict(T)
            assert isinstance(scores, torch.Tensor)
            assert isinstance(answer, torch.Tensor)
            np.testing.assert_allclose(scores.cpu().numpy(), each.decision_function(X), atol=1e-4)
            np.testing.assert_array_equal(answer.cpu().numpy(), each.predict(X))
            with pytest.raises(ValueError, match="expects rows of 3 features"):
                each.predict(T[:, :2])
        fitted = MultiLabelSVC(kernel=kernel, random_state=0).fit(T.double(), Y)
    np.testing.assert_array_equal(fitted.predict(X), model.predict(X))


@inside
@pytest.mark.skipif(not CUPY, reason="needs a GPU and CuPy")
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_predictions_for_cupy_arrays_are_cupy_arrays(kernel, dtype):
    import cupy

    X, Y = data()
    kinds = (MultiLabelSVC, Y), (MultiClassSVC, Y.argmax(1)), (SparseMultiLabelSVC, Y)
    A = cupy.asarray(X, dtype=dtype)
    for kind, answers in kinds:
        model = kind(kernel=kernel, random_state=0).fit(X, answers)
        with sklearn.config_context(array_api_dispatch=True):
            scores, answer = model.decision_function(A), model.predict(A)
            assert isinstance(scores, cupy.ndarray)
            assert isinstance(answer, cupy.ndarray)
            with pytest.raises(ValueError, match="expects rows of 3 features"):
                model.predict(A[:, :2])
        np.testing.assert_allclose(cupy.asnumpy(scores), model.decision_function(X), atol=1e-4)
        np.testing.assert_array_equal(cupy.asnumpy(answer), model.predict(X))


@inside
def test_class_names_are_returned_as_numpy_arrays():
    X, _ = data()
    y = np.where(X[:, 0] > 0, "on", "off")
    model = MultiClassSVC().fit(X, y)
    with sklearn.config_context(array_api_dispatch=True):
        assert model.predict(torch.from_numpy(X)).tolist() == model.predict(X).tolist()
