"""
Scaling and choosing C
======================

Two decisions matter more than the choice of a model: how the columns are scaled,
and C. Nothing is scaled for you, and the best C depends on the scaling.
`GridSearchCV` works as everywhere; `regularization_path` visits many values of C,
each starting from the solution before.
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

train, test = datasets.load("emotions", "train"), datasets.load("emotions", "test")
folds = IterativeStratifiedKFold(3, shuffle=True, random_state=0)
Cs = np.geomspace(1e-4, 10, 11)

# %%
# The same grid for columns as they come and for standardised ones. The score is
# named: the default, the share of samples whose whole set is right, is too coarse to
# choose by.

curves, chosen = {}, {}
for name, steps in {"as they come": (), "standardised": (StandardScaler(),)}.items():
    search = GridSearchCV(
        make_pipeline(*steps, MultiLabelSVC(tol=1e-2, random_state=0)),
        {"multilabelsvc__C": Cs},
        scoring="f1_macro",
        cv=folds,
    )
    search.fit(train.X, train.Y)
    curves[name] = search.cv_results_["mean_test_score"]
    chosen[name] = search.best_params_["multilabelsvc__C"]
    f1 = f1_score(test.Y, search.predict(test.X), average="macro", zero_division=0)
    print(
        f"{name:14s} C = {chosen[name]:.3g}: macro F1 in the folds "
        f"{search.best_score_:.3f}, on the test part {f1:.3f}"
    )

# %%
# A path on one split, beside fits from nothing at every C.

X = StandardScaler().fit_transform(train.X)
model = MultiLabelSVC(tol=1e-3, random_state=0)
start = time.process_time()
passes = [
    fitted.n_iter_ for fitted in regularization_path(model, X, train.Y, Cs.tolist())
]
along = time.process_time() - start
start = time.process_time()
for C in Cs:
    model.set_params(C=C).fit(X, train.Y)
print(f"the path {along:.2f} s, fits from nothing {time.process_time() - start:.2f} s")
print("epochs along the path:", passes)

# %%
# With standardised columns the best C is far from the default, and the curve is smooth.
# The columns as they come differ in size by a factor of thousands, so that no C suits all
# of them.

for name, curve in curves.items():
    plt.semilogx(Cs, curve, "o-", label=f"columns {name}")
    plt.plot(chosen[name], curve.max(), "k*", markersize=12)
plt.axvline(1, color="0.8", linestyle="--")
plt.text(1.05, plt.ylim()[0] + 0.01, "the default", color="0.5")
plt.xlabel("C")
plt.ylabel("macro F1 in three folds")
plt.legend()
plt.show()
