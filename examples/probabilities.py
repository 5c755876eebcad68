"""
Probabilities that can be believed
==================================

The scores of an SVM order samples; they are no probabilities. ``Calibrated`` scores
every sample by a model that has not seen it and learns from these scores, for all
labels at once, how often a label is true at a score.

A reliability diagram tells whether probabilities can be believed: of the entries
that were told with 30 %, 30 % should be true.
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
told = {
    "scores through one fixed sigmoid": expit(scores),
    "Calibrated, sigmoid": models["sigmoid"].predict_proba(test.X),
    "Calibrated, isotonic": models["isotonic"].predict_proba(test.X),
    "share of each label": np.tile(train.Y.mean(axis=0), (len(test.Y), 1)),
}
for name, P in told.items():
    losses = label_log_loss(test.Y, P), label_brier(test.Y, P)
    print(f"{name:34s} log loss {losses[0]:.4f}   Brier score {losses[1]:.4f}")

# %%
# Labels with few positive samples would have sigmoids of their own that say little;
# their slopes are drawn to those of the other labels.

slopes = models["sigmoid"].curves_.slope
positives = train.Y.sum(axis=0)
fig, (left, right) = plt.subplots(1, 2)
left.plot([0, 1], [0, 1], color="grey", linestyle=":")
for name, P in list(told.items())[:3]:
    x, y, counts = reliability(test.Y, P)
    left.plot(x, y, marker="o", markersize=4, label=name)
left.set(xlabel="probability told", ylabel="share that is true")
left.legend(fontsize=7)
right.scatter(positives, slopes)
right.set(xlabel="positive training samples", ylabel="slope of the label", xscale="log")
plt.show()
