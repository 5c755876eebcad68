"""
Labels that form a tree
=======================

Subjects have broader subjects, and products have groups. Labels with common ancestors
are correlated, which ``priors.from_tree`` uses in training; and a child implies its
parents, which ``TreeLabels`` enforces in prediction.

In the generated data a label inherits weights from its ancestors, and is on only if
its parent is.
"""

import matplotlib.pyplot as plt
import numpy as np

from maxmargin import MultiLabelSVC, TreeLabels, priors

edges = [(0, k) for k in (1, 2, 3)] + [
    (k, 3 * k + j) for k in (1, 2, 3) for j in (1, 2, 3)
]
R = priors.from_tree(edges)
parents = {child: parent for parent, child in edges}
sizes = [20, 40, 80, 160, 320]
found = {name: np.zeros((5, len(sizes))) for name in ("alone", "prior", "both")}
for repetition in range(5):
    rng = np.random.default_rng(repetition)
    weights = np.linalg.cholesky(R) @ rng.normal(size=(13, 30))
    X = rng.normal(size=(1500, 30))
    Y = X @ weights.T + 2 * rng.normal(size=(1500, 13)) > -1
    for child, parent in parents.items():
        Y[:, child] &= Y[:, parent]
    test, truth = X[500:], Y[500:]
    for place, n in enumerate(sizes):
        alone = MultiLabelSVC(C=0.01, random_state=0).fit(X[:n], Y[:n].astype(int))
        prior = MultiLabelSVC(C=0.01, prior=R, random_state=0)
        both = TreeLabels(prior, edges).fit(X[:n], Y[:n].astype(int))
        answers = {
            "alone": alone.predict(test) > 0,
            "prior": both.estimator_.predict(test) > 0,
            "both": both.predict(test) > 0,
        }
        for name, answer in answers.items():
            found[name][repetition, place] = np.mean((answer == truth).all(axis=1))
for name, values in found.items():
    print(f"{name:6s}", values.mean(axis=0).round(3))

# %%
# The share of samples whose labels are all right:

fig, axis = plt.subplots()
words = {
    "alone": "no tree",
    "prior": "prior from the tree",
    "both": "the same, sets that agree with it",
}
for name, values in found.items():
    axis.plot(sizes, values.mean(axis=0), marker="o", label=words[name])
axis.set(xscale="log", xlabel="training samples", ylabel="samples that are all right")
axis.set_xticks(sizes, sizes)
axis.legend()
plt.show()
