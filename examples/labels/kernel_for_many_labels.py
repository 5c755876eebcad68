"""
One kernel matrix for all labels
================================

The kernel depends on the samples and not on the labels. `MultiLabelSVC(kernel="rbf")`
computes it once and trains all labels on it, while one `SVC` per label computes it
again for each. Both minimise the same function except for the bias, which is a
constant feature here.
"""

import time

import matplotlib.pyplot as plt
from sklearn.metrics import f1_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from maxmargin import MultiLabelSVC, datasets

train, test = datasets.load("yeast", "train"), datasets.load("yeast", "test")
scaler = StandardScaler().fit(train.X)
X, X_test = scaler.transform(train.X), scaler.transform(test.X)
print(X.shape[0], "genes,", X.shape[1], "features,", train.Y.shape[1], "labels")

models = {
    "MultiLabelSVC, RBF": MultiLabelSVC(kernel="rbf", random_state=0),
    "SVC per label, RBF": OneVsRestClassifier(SVC()),
    "LinearSVC per label": OneVsRestClassifier(LinearSVC(random_state=0)),
}


def timed(work, *data):
    """The answer, and the best of three times."""
    times = []
    for _ in range(3):
        start = time.process_time()
        answer = work(*data)
        times.append(time.process_time() - start)
    return answer, min(times)


rows = []
for name, model in models.items():
    _, fitting = timed(model.fit, X, train.Y)
    answer, answering = timed(model.predict, X_test)
    f1 = [
        f1_score(test.Y, answer, average=kind, zero_division=0)
        for kind in ("micro", "macro")
    ]
    rows.append((name, fitting, *f1))
    print(
        f"{name:20s} fit {fitting:5.2f} s   predict {answering:6.3f} s   "
        f"F1: micro {f1[0]:.3f}, macro {f1[1]:.3f}"
    )

# %%
# The two kernel models make the same predictions. The macro F1 is low because a model
# that minimises errors rarely predicts rare labels;
# :ref:`sphx_glr_auto_examples_labels_thresholds_for_f1.py` shows the remedy.

fig, axes = plt.subplots(1, 3, figsize=(9, 2.8), sharey=True)
for axis, column, title in zip(
    axes, (1, 2, 3), ("seconds to fit", "micro F1", "macro F1"), strict=True
):
    bars = axis.barh(
        [row[0] for row in rows],
        [row[column] for row in rows],
        color=["C0", "0.6", "0.8"],
    )
    axis.bar_label(bars, fmt="%.2f", padding=3)
    axis.set(title=title)
    axis.margins(x=0.2)
axes[0].invert_yaxis()
plt.show()
