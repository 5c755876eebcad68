"""
Label sets with a guaranteed recall
===================================

If people check suggested labels by hand, the true labels should be among them.
``LabelSets(model, recall=0.9)`` predicts sets that contain nine of ten true labels in
expectation; a higher recall needs larger sets.

The guarantee holds for any model, as long as new samples come from the distribution
of the calibration samples. It concerns the mean: a single sample can miss more.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from maxmargin import Calibrated, LabelSets, MultiLabelSVC, datasets

data = datasets.load("emotions")
X, Y = data.X, data.Y
svc = make_pipeline(StandardScaler(), MultiLabelSVC(C=0.01, random_state=0))
asked = np.array([0.5, 0.6, 0.7, 0.8, 0.9, 0.95])
candidates = {"scores": svc, "probabilities": Calibrated(svc)}
found = {name: np.zeros((8, len(asked), 2)) for name in candidates}
for repetition in range(8):
    order = np.random.default_rng(repetition).permutation(len(Y))
    train, test = order[:400], order[400:]
    for name, model in candidates.items():
        for k, recall in enumerate(asked):
            sets = LabelSets(model, recall=recall, random_state=repetition)
            sets.fit(X[train], Y[train])
            size = sets.predict(X[test]).sum(axis=1).mean()
            found[name][repetition, k] = sets.score(X[test], Y[test]), size
for name, values in found.items():
    print(name, values.mean(axis=0).round(2).tolist())

# %%
# Points are single repetitions; the guarantee concerns their mean.

fig, (left, right) = plt.subplots(1, 2)
left.plot(asked, asked, color="grey", linestyle=":", label="as requested")
for name, values in found.items():
    recall, size = values.mean(axis=0).T
    (line,) = left.plot(asked, recall, marker="o", markersize=4, label=f"from {name}")
    repeated = np.tile(asked, (8, 1))
    left.scatter(repeated, values[:, :, 0], s=4, color=line.get_color(), alpha=0.4)
    right.plot(asked, size, marker="o", markersize=4, label=f"from {name}")
right.axhline(Y.sum(axis=1).mean(), color="grey", linestyle=":", label="true labels")
left.set(xlabel="requested recall", ylabel="recall on test samples")
right.set(xlabel="requested recall", ylabel="labels in a set")
left.legend()
right.legend()
plt.show()
