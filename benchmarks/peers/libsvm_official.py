"""libsvm-official, one model per label on samples converted once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from benchmarks.problems import kernel_multilabel

NEEDS = ("libsvm",)


def fit_kernel(problem: kernel_multilabel.Problem) -> list[Any]:
    from libsvm.svmutil import svm_problem, svm_train
    from scipy.sparse import csr_matrix

    signs = 2.0 * problem.Y - 1
    shared = svm_problem(signs[:, 0], csr_matrix(problem.X.astype(np.float64)))
    options = f"-q -s 0 -t 2 -c {problem.C} -g {problem.gamma} -m 200"
    models = []
    for l in range(signs.shape[1]):
        for i, sign in enumerate(signs[:, l]):
            shared.y[i] = sign
        models.append(svm_train(shared, options))
    return models


def kernel_coefficients(
    problem: kernel_multilabel.Problem, models: list[Any]
) -> tuple[np.ndarray, np.ndarray, float]:
    A, b = np.zeros(problem.Y.shape), np.zeros(problem.Y.shape[1])
    for l, model in enumerate(models):
        first = 1 if model.get_labels()[0] == 1 else -1
        for index, value in zip(model.get_sv_indices(), model.get_sv_coef(), strict=True):
            A[index - 1, l] = first * value[0]
        b[l] = -first * model.rho[0]
    return A, b, 0.0
