"""
A joint margin instead of one-vs-rest
=====================================

Three groups of points in a row. One-vs-rest needs for each class a line that
separates it from all others; no such line exists for the class in the middle.
`MultiClassSVC` only requires that the right class score higher than the others.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.inspection import DecisionBoundaryDisplay
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from maxmargin import MultiClassSVC, MultiLabelSVC, datasets

rng = np.random.default_rng(0)
y = rng.integers(3, size=240)
X = np.c_[2.2 * (y - 1), np.zeros(240)] + rng.normal(scale=0.55, size=(240, 2))

models = {
    "MultiClassSVC\n(joint margin)": MultiClassSVC(C=1, random_state=0),
    "LinearSVC\n(one-vs-rest, squared hinge)": LinearSVC(C=1, random_state=0),
    "MultiLabelSVC\n(one-vs-rest, hinge)": MultiLabelSVC(C=1, random_state=0),
}
fig, axes = plt.subplots(1, 3, figsize=(8.4, 3.4), sharey=True)
for axis, (name, model) in zip(axes, models.items(), strict=True):
    model.fit(X, y)
    DecisionBoundaryDisplay.from_estimator(
        model,
        X,
        ax=axis,
        response_method="predict",
        alpha=0.3,
        multiclass_colors="viridis",
    )
    axis.scatter(*X.T, c=y, s=9, cmap="viridis")
    axis.set(title=f"{name}: {model.score(X, y):.2f}", xlabel="", ylabel="")
plt.show()

# %%
# With more features the difference shrinks or changes its sign. scikit-learn's small
# tables, standardised, five folds, C = 1:

others = {
    "LinearSVC": LinearSVC(random_state=0),
    "LogisticRegression": LogisticRegression(max_iter=1000),
}
for name in ("iris", "wine"):
    data = datasets.load(name)
    for title, model in {
        "MultiClassSVC": MultiClassSVC(random_state=0),
        **others,
    }.items():
        score = cross_val_score(
            make_pipeline(StandardScaler(), model), data.X, data.Y, cv=5
        ).mean()
        print(f"{name:6s} {title:20s} {score:.3f}")
