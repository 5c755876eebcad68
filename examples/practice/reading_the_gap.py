"""
Reading the duality gap
=======================

Training lowers a primal objective P and raises a dual objective D, and no weights have
an objective below D. So (P - D) / P bounds the distance to the optimum. This example
compares the bound with the true distance, and with the score on held-out data.
"""

import warnings

import matplotlib.pyplot as plt
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import f1_score
from sklearn.preprocessing import StandardScaler

from maxmargin import MultiLabelSVC, datasets

train, test = datasets.load("emotions", "train"), datasets.load("emotions", "test")
scaler = StandardScaler().fit(train.X)
X, X_test = scaler.transform(train.X), scaler.transform(test.X)

best = MultiLabelSVC(C=0.1, tol=1e-8, random_state=0).fit(X, train.Y)
print(f"the optimum: {best.primal_objective_:.6f}, after {best.n_iter_} epochs")

# %%
# The paper's solver, stopped after different numbers of epochs. A fit that stops early
# warns with its gap; the warnings are silenced here.

records = []
for epochs in (1, 2, 4, 8, 16, 32, 64, 128):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = MultiLabelSVC(
            C=0.1, solver="dca", tol=1e-6, max_iter=epochs, random_state=0
        ).fit(X, train.Y)
    truth = model.primal_objective_ / best.primal_objective_ - 1
    f1 = f1_score(test.Y, model.predict(X_test), average="micro")
    records.append((epochs, model.duality_gap_, truth, f1))
    print(
        f"{epochs:4d} epochs: gap {model.duality_gap_:.1e}, truly above the optimum "
        f"{truth:.1e}, micro F1 {f1:.4f}"
    )

# %%
# The true distance is always below the gap. The score changes little below a gap of
# 0.01; gaps below the default of 0.001 matter for studies of the optimum.

epochs, gap, truth, f1 = zip(*records, strict=True)
fig, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.6))
left.loglog(epochs, gap, "o-", label="certified gap")
left.loglog(epochs, truth, "o-", label="true distance")
left.axhline(1e-3, color="0.8", linestyle="--")
left.text(epochs[0], 1.15e-3, "default tol", color="0.5")
left.set(xlabel="epochs", title="a bound that holds")
left.legend()
right.semilogx(gap, f1, "o-", color="C2")
right.invert_xaxis()
right.set(xlabel="gap at which training stopped", title="micro F1 on the test part")
plt.show()
