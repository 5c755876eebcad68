"""
Subjects for books: a thousand labels with a long tail
======================================================

Subject indexing assigns a few terms of a large vocabulary to every book. Most
subjects are rare, and readers look at the first suggestions only, so the measure is
precision at k. The titles are English ones from Finnish libraries, the subjects were
chosen by librarians from the General Finnish Ontology.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC

from maxmargin import MultiLabelSVC, datasets, metrics

data = datasets.load("yso-sample")
train, test = data.part("train"), data.part("test")
X, X_test = sp.csr_matrix(train.X), sp.csr_matrix(test.X)  # tf-idf of the words
Y, Y_test = train.Y, test.Y
print(X.shape[0], "+", X_test.shape[0], "titles,", Y.shape[1], "subjects,", end=" ")
print(f"{Y.sum(axis=1).mean():.1f} for each title")

# %%
# `MultiLabelSVC` trains all labels together, `LinearSVC` one after the other, with
# the same loss.

MultiLabelSVC().fit(
    X, Y
)  # a first fit loads the machine code, which is not to be timed
models = {
    "LinearSVC per label": OneVsRestClassifier(LinearSVC(loss="hinge", max_iter=5000)),
    "MultiLabelSVC": MultiLabelSVC(random_state=0),
}
scores = {"most frequent": np.tile(Y.mean(axis=0), (len(Y_test), 1))}
for name, model in models.items():
    start = time.process_time()
    model.fit(X, Y)
    print(f"{name:20s} {time.process_time() - start:6.2f} s")
    scores[name] = model.decision_function(X_test)

places = range(1, 6)
curves = {
    name: [metrics.precision_at_k(Y_test, score, k) for k in places]
    for name, score in scores.items()
}
for name, curve in curves.items():
    print(f"{name:20s} P@1 {curve[0]:.3f}   P@3 {curve[2]:.3f}   P@5 {curve[4]:.3f}")

# %%
# Suggestions for some titles. A star marks the subjects that a librarian chose too.
# Scores rank the subjects; for thresholds see
# :ref:`sphx_glr_auto_examples_labels_thresholds_for_f1.py`.

for row in (10, 20, 30):
    best = np.argsort(-scores["MultiLabelSVC"][row])[:5]
    marked = [("*" if Y_test[row, k] else "") + data.label_names[k] for k in best]
    print(test.per_row["text"][row][:80], "->\n   ", ", ".join(marked))

# %%
# The tail is long. Both linear models have the same optimum, so their curves
# coincide; they differ in time. A title contains little information: half of the
# first suggestions differ from the librarian's choice, although some are good ones.

fig, (left, right) = plt.subplots(1, 2)
left.loglog(np.sort(Y.sum(axis=0))[::-1], ".")
left.set(xlabel="subject, by frequency", ylabel="titles", title="a long tail")
for (name, curve), color in zip(curves.items(), ("0.6", "C1", "C0"), strict=True):
    line = "o--" if name.startswith("Linear") else "o-"
    right.plot(places, curve, line, color=color, label=name)
right.set(xlabel="k", title="share of the first k that is right", ylim=(0, 1))
right.set_xticks(places)
right.legend()
plt.show()
