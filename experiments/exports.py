"""ONNX models beside NumPy on real data: equality of the predictions, size and speed.

    python -m experiments.exports [--small] [data set ...]

Needs the extra `onnx`. MultiLabelSVC (scaled columns) with probabilities. Test samples are repeated with a
little noise to 10^5 rows and predicted in batches of 240 MB; "other labels" counts entries that differ.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

import experiments.data  # noqa: F401  (makes the research sets known)
from experiments._results import chosen, show, write
from experiments._results import load as machine_load
from experiments.probabilities import SETS, parts, scaled
from maxmargin import Calibrated, MultiLabelSVC, to_onnx

ROWS, NUMBERS = 10**5, 3 * 10**7


def rows_of(name: str) -> Iterator[dict[str, Any]]:
    import onnxruntime

    X, Y, X_test, _ = parts(name)
    X, X_test = scaled(X, X_test)
    dense = X_test.toarray() if sp.issparse(X_test) else X_test
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = Calibrated(MultiLabelSVC(random_state=0, tol=1e-2)).fit(X, Y)
    text = to_onnx(model).SerializeToString()
    session = onnxruntime.InferenceSession(text, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    step = NUMBERS // dense.shape[1]
    found = [
        compared(model, session, noisy(dense, np.arange(first, min(first + step, ROWS)), rng), sp.issparse(X))
        for first in range(0, ROWS, step)
    ]
    yield {
        "data": name,
        "rows": ROWS,
        "labels": Y.shape[1],
        "other labels": sum(piece[0] for piece in found),
        "scores differ by": max(piece[1] for piece in found),
        "probabilities differ by": max(piece[2] for piece in found),
        "bytes": len(text),
        "onnxruntime CPU s": sum(piece[3] for piece in found),
    }


def noisy(X: np.ndarray, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return rows of X, repeated as often as needed, with a little noise."""
    found = np.ascontiguousarray(X[rows % len(X)], dtype=np.float64)
    found *= 1 + 0.3 * (rng.random(found.shape) - 0.5)
    return found


def compared(
    model: Calibrated, session: Any, dense: np.ndarray, sparse: bool
) -> tuple[int, float, float, float]:
    """Labels that are others, largest differences of scores and probabilities, and seconds of onnxruntime."""
    begin = time.process_time()
    labels, scores, probabilities = session.run(["labels", "scores", "probabilities"], {"X": dense})
    seconds = time.process_time() - begin
    rows = sp.csr_array(dense) if sparse else dense
    return (
        int((labels != np.asarray(model.predict(rows))).sum()),
        float(np.abs(scores - model.estimator_.decision_function(rows)).max()),
        float(np.abs(probabilities - model.predict_proba(rows)).max()),
        seconds,
    )


if __name__ == "__main__":
    for name in chosen(__doc__, SETS, ("emotions",)):
        rows = list(rows_of(name))
        show(*rows)
        print(write("exports", rows, key=("data",), conditions=machine_load()))
