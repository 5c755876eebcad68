"""The race with many labels: labels that are fitted in parts give the answers of all together."""

import numpy as np
import scipy.sparse as sp

from benchmarks.many_labels import in_parts
from maxmargin import MultiLabelSVC


def test_parts_of_the_labels_answer_as_all_of_them():
    rng = np.random.default_rng(2)
    X = sp.random_array((70, 24), density=0.2, format="csr", random_state=rng)
    Y = sp.csr_array((rng.random((70, 20)) < 0.15).astype(int))
    model = MultiLabelSVC(memory_limit=0, prune_below=0, tol=1e-8, random_state=0)
    top, measured = in_parts(X, Y, X, model, 7)
    # Labels of nearly equal score may change places.
    _, best = model.fit(X, Y).predict_top(X, 5)
    np.testing.assert_allclose(np.take_along_axis(model.decision_function(X), top, axis=1), best, atol=1e-3)
    assert measured["gap"] <= 1e-8
