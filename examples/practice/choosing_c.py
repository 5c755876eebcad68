"""
Scaling and choosing C
======================

Two decisions matter more than the choice of a model: the scaling of the columns, and
C. Estimators do not scale, and the best C depends on the scaling. `GridSearchCV` works
as usual; `regularization_path` fits many values of C, each started from the previous
solution.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from maxmargin import MultiLabelSVC, datasets
from maxmargin.model_selection import IterativeStratifiedKFold, regularization_path

train, test = datasets.load("yeast", "train"), datasets.load("yeast", "test")
folds = IterativeStratifiedKFold(3, shuffle=True, random_state=0)
X, Y = train.X[:400], train.Y[:400]

# %%
# A search on raw and on standardised columns. Name the score: the default, the share
# of samples whose whole set is right, is too coarse.

cases = {
    "as they come": ((), np.geomspace(0.01, 100, 9)),
    "standardised": ((StandardScaler(),), np.geomspace(1e-4, 1, 9)),
}
curves = {}
for name, (steps, Cs) in cases.items():
    search = GridSearchCV(
        make_pipeline(*steps, MultiLabelSVC(tol=1e-2, random_state=0)),
        {"multilabelsvc__C": Cs},
        scoring="f1_micro",
        cv=folds,
    ).fit(X, Y)
    curves[name] = (Cs, search.cv_results_["mean_test_score"])
    f1 = f1_score(test.Y, search.predict(test.X), average="micro")
    print(
        f"{name:14s} C = {search.best_params_['multilabelsvc__C']:.3g}: micro F1 in "
        f"the folds {search.best_score_:.3f}, on the test part {f1:.3f}"
    )

# %%
# A path on one split, beside independent fits.

X = StandardScaler().fit_transform(X)
model = MultiLabelSVC(tol=1e-2, random_state=0)
start = time.process_time()
passes = [fitted.n_iter_ for fitted in regularization_path(model, X, Y, Cs.tolist())]
along = time.process_time() - start
start = time.process_time()
for C in Cs:
    model.set_params(C=C).fit(X, Y)
print(f"the path {along:.2f} s, fits from nothing {time.process_time() - start:.2f} s")
print("epochs along the path:", passes)

# %%
# The raw columns contain small numbers, so they need a C a hundred times as large. The
# default C = 1 happens to be best for them, and is far too large for standardised
# columns. If columns differ in size, no C suits all of them, and only scaling helps.

for name, (Cs, curve) in curves.items():
    plt.semilogx(Cs, curve, "o-", label=f"columns {name}")
    plt.plot(Cs[np.argmax(curve)], curve.max(), "k*", markersize=12)
plt.axvline(1, color="0.8", linestyle="--")
plt.text(1.1, plt.ylim()[0] + 0.01, "the default", color="0.5")
plt.xlabel("C")
plt.ylabel("micro F1 in three folds")
plt.legend()
plt.show()
