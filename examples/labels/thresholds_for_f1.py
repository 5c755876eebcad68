"""
Thresholds for the F1 of rare labels
====================================

An SVM minimises errors, and never predicting a label that one sample in twenty has
makes few errors. Its F1 is then zero. Two remedies keep the model: a threshold per
label, chosen by cross-validation on the training part, or a larger weight for the
positive entries.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, hamming_loss
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import StandardScaler

from maxmargin import MultiLabelSVC, datasets
from maxmargin.baselines import ThresholdTuner

train, test = datasets.load("yeast", "train"), datasets.load("yeast", "test")
scaler = StandardScaler().fit(train.X)
X, X_test = scaler.transform(train.X), scaler.transform(test.X)

svc = MultiLabelSVC(C=0.1, random_state=0)
logistic = OneVsRestClassifier(LogisticRegression(C=0.1, max_iter=500))
models = {
    "MultiLabelSVC": svc,
    "class_weight='balanced'": MultiLabelSVC(
        C=0.1, class_weight="balanced", random_state=0
    ),
    "tuned thresholds": ThresholdTuner(svc, average="macro"),
    "LogisticRegression": logistic,
    "the same, tuned": ThresholdTuner(logistic, average="macro"),
}
answers = {
    name: model.fit(X, train.Y).predict(X_test) for name, model in models.items()
}
for name, answer in answers.items():
    micro, macro = (
        f1_score(test.Y, answer, average=kind, zero_division=0)
        for kind in ("micro", "macro")
    )
    never = int((answer.sum(axis=0) == 0).sum())
    wrong = hamming_loss(test.Y, answer)
    print(
        f"{name:24s} F1: micro {micro:.3f}, macro {macro:.3f}   wrong entries "
        f"{wrong:.3f}   never predicted: {never}"
    )

# %%
# Rare labels gain at the price of more wrong entries and a lower micro F1. Logistic
# regression gains from thresholds too, and is ahead here.

share = test.Y.mean(axis=0)
order = np.argsort(share)
places = np.arange(len(order))
fig, axis = plt.subplots()
for shift, name in zip((-0.27, 0, 0.27), list(models)[:3], strict=True):
    f1 = f1_score(test.Y, answers[name], average=None, zero_division=0)
    axis.bar(places + shift, f1[order], width=0.25, label=name)
axis.set_xticks(places, [f"{100 * value:.0f} %" for value in share[order]])
axis.set(
    xlabel="labels, by the share of genes that have them", ylabel="F1 on the test part"
)
axis.legend()
plt.show()
