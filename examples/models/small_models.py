"""
Small kernel models
===================

A kernel SVM stores its support vectors, and prediction needs one kernel value for
each. `SparseMultiClassSVC` grows a small basis that all classes share. One fit
contains every smaller model, so the size can be chosen afterwards.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.kernel_approximation import Nystroem
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC, LinearSVC

from maxmargin import SparseMultiClassSVC

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(
    X / 16, y, test_size=0.5, random_state=0, stratify=y
)
GAMMA = 0.3

machine = SparseMultiClassSVC(
    C=10, gamma=GAMMA, max_basis=80, n_candidates=8, rel_tol=0, random_state=0
).fit(X, y)
grown = [np.mean(answer == y_test) for answer in machine.staged_predict(X_test)]
svc = SVC(C=10, gamma=GAMMA).fit(X, y)
exact = svc.score(X_test, y_test)

# %%
# `basis="learned"` also optimises the vectors and the width of the kernel.

few = [5, 10, 20]
learned = [
    SparseMultiClassSVC(
        C=10,
        gamma=GAMMA,
        max_basis=size,
        n_candidates=8,
        rel_tol=0,
        basis="learned",
        random_state=0,
    )
    .fit(X, y)
    .score(X_test, y_test)
    for size in few
]

# %%
# Nystroem draws a basis at random.

sizes = [10, 20, 40, 60, 80]
drawn = [
    [
        make_pipeline(
            Nystroem(gamma=GAMMA, n_components=size, random_state=seed),
            LinearSVC(C=10, random_state=0),
        )
        .fit(X, y)
        .score(X_test, y_test)
        for seed in range(3)
    ]
    for size in sizes
]


def seconds(model):
    """Seconds to answer the test part, the best of five."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        model.predict(X_test)
        times.append(time.perf_counter() - start)
    return min(times)


enough = int(np.argmax(np.array(grown) >= max(grown) - 0.005)) + 1
small = machine.truncate(enough)
for name, model, vectors, score in (
    ("SVC", svc, len(svc.support_), exact),
    ("SparseMultiClassSVC", machine, machine.n_basis_, grown[-1]),
    (f"truncate({enough})", small, enough, grown[enough - 1]),
):
    print(
        f"{name:20s} {vectors:4d} vectors   accuracy {score:.4f}   "
        f"{1000 * seconds(model):6.2f} ms to answer"
    )

# %%
# For the same accuracy a learned basis needs far fewer vectors than a greedy one. The
# greedy basis beats a random one while it is small. The last step to the accuracy of
# the full `SVC` needs the most vectors.

plt.plot(range(1, len(grown) + 1), grown, label="SparseMultiClassSVC, grown one by one")
plt.plot(few, learned, "o-", color="C2", label="SparseMultiClassSVC, learned")
name = "Nystroem + LinearSVC, drawn at random"
plt.errorbar(
    sizes,
    np.mean(drawn, axis=1),
    np.std(drawn, axis=1),
    color="0.5",
    label=name,
    capsize=2,
)
plt.axhline(
    exact,
    color="C1",
    linestyle="--",
    label=f"SVC with its {len(svc.support_)} support vectors",
)
plt.xlabel("basis vectors")
plt.ylabel("accuracy on the test part")
plt.ylim(0.7, 1)
plt.legend()
plt.show()
