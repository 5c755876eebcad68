"""Whether ONNX models answer as numpy does on real data, and how large and fast they are.

    python -m experiments.exports [--small] [data set ...]

Needs the extra `onnx`. MultiLabelSVC (scaled columns) with probabilities; test samples, repeated with a
little noise to 10^5 rows or as many as fit into 240 MB; "other labels" counts entries of the answers that
differ.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

import experiments.data  # noqa: F401  (makes the research sets known)
from experiments._results import chosen, write
from experiments._results import load as machine_load
from experiments.probabilities import SETS, parts, scaled
from maxmargin import Calibrated, MultiLabelSVC, to_onnx

ROWS, NUMBERS = 10**5, 3 * 10**7


def rows_of(name: str) -> Iterator[dict[str, Any]]:
    import onnxruntime

    X, Y, X_test, _ = parts(name)
    X, X_test = scaled(X, X_test)
    dense = X_test.toarray() if sp.issparse(X_test) else X_test
    n = min(ROWS, NUMBERS // dense.shape[1])
    dense = np.ascontiguousarray(dense[np.arange(n) % len(dense)], dtype=np.float64)
    # Rows that are no repetitions: every entry a little larger or smaller.
    dense *= 1 + 0.1 * np.random.default_rng(0).standard_normal(dense.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = Calibrated(MultiLabelSVC(random_state=0, tol=1e-2)).fit(X, Y)
    text = to_onnx(model).SerializeToString()
    session = onnxruntime.InferenceSession(text, providers=["CPUExecutionProvider"])
    begin = time.process_time()
    labels, scores, probabilities = session.run(["labels", "scores", "probabilities"], {"X": dense})
    seconds = time.process_time() - begin
    rows = sp.csr_array(dense) if sp.issparse(X) else dense
    yield {
        "data": name,
        "rows": n,
        "labels": Y.shape[1],
        "other labels": int((labels != np.asarray(model.predict(rows))).sum()),
        "scores differ by": float(np.abs(scores - model.estimator_.decision_function(rows)).max()),
        "probabilities differ by": float(np.abs(probabilities - model.predict_proba(rows)).max()),
        "bytes": len(text),
        "onnxruntime CPU s": seconds,
    }


if __name__ == "__main__":
    for name in chosen(SETS, ("emotions",)):
        rows = list(rows_of(name))
        print(*rows, flush=True)
        print(write("exports", rows, key=("data",), conditions=machine_load()))
