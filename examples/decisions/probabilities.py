"""
Calibrated probabilities
========================

The scores of an SVM rank samples; they are not probabilities. ``Calibrated`` scores
every sample by a model that was not trained on it, and fits for each label a curve
from scores to probabilities.

A reliability diagram shows the quality: of the entries with a probability of 30 %,
30 % should be true.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from maxmargin import Calibrated, MultiLabelSVC, datasets
from maxmargin.metrics import label_brier, label_log_loss, reliability

train, test = datasets.load("yeast", "train"), datasets.load("yeast", "test")
svc = make_pipeline(StandardScaler(), MultiLabelSVC(kernel="rbf", random_state=0))
models = {
    method: Calibrated(svc, method=method).fit(train.X, train.Y)
    for method in ("sigmoid", "isotonic")
}
scores = models["sigmoid"].estimator_.decision_function(test.X)
found = {
    "scores through one fixed sigmoid": expit(scores),
    "Calibrated, sigmoid": models["sigmoid"].predict_proba(test.X),
    "Calibrated, isotonic": models["isotonic"].predict_proba(test.X),
    "share of each label": np.tile(train.Y.mean(axis=0), (len(test.Y), 1)),
}
for name, P in found.items():
    losses = label_log_loss(test.Y, P), label_brier(test.Y, P)
    print(f"{name:34s} log loss {losses[0]:.4f}   Brier score {losses[1]:.4f}")

# %%
# Slopes of labels with few positive samples are shrunk towards those of the others.

slopes = models["sigmoid"].curves_.slope
positives = train.Y.sum(axis=0)
fig, (left, right) = plt.subplots(1, 2)
left.plot([0, 1], [0, 1], color="grey", linestyle=":")
for name, P in list(found.items())[:3]:
    x, y, counts = reliability(test.Y, P)
    left.plot(x, y, marker="o", markersize=4, label=name)
left.set(xlabel="predicted probability", ylabel="share that is true")
left.legend(fontsize=7)
right.scatter(positives, slopes)
right.set(xlabel="positive training samples", ylabel="slope of the label", xscale="log")
plt.show()
