"""
Comparison with scikit-learn
============================

Every model has a counterpart in scikit-learn. Both get standardised columns and the
same search for C on the training part. The figure compares the score on the test part
and the time of the whole search. scikit-learn is ahead on some of them.
"""

import time
import warnings

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from maxmargin import MultiClassSVC, MultiLabelSVC, datasets

warnings.simplefilter("ignore")  # of LinearSVC, which does not always converge
CS = [0.01, 0.1, 1]


def tuned(model, X, y, scoring):
    """Search for C in three folds; the model and the seconds that it took."""
    pipeline = make_pipeline(StandardScaler(), model)
    name = next(name for name in pipeline.get_params() if name.endswith("__C"))
    start = time.process_time()
    search = GridSearchCV(pipeline, {name: CS}, scoring=scoring, cv=3).fit(X, y)
    return search, time.process_time() - start


# %%
# One class per sample: tables of scikit-learn, linear and with a kernel.

rows = []
multiclass = {
    "linear": (MultiClassSVC(random_state=0), LinearSVC(random_state=0)),
    "RBF": (MultiClassSVC(kernel="rbf", random_state=0), SVC()),
}
for load in (load_iris, load_wine, load_breast_cancer, load_digits):
    X, y = load(return_X_y=True)
    parts = train_test_split(X, y, test_size=0.5, random_state=0, stratify=y)
    X, X_test, y, y_test = parts
    for kind, (ours, theirs) in multiclass.items():
        ours.fit(X, y)  # loads the machine code, which is not to be timed
        mine, seconds = tuned(ours, X, y, "accuracy")
        other, their_seconds = tuned(theirs, X, y, "accuracy")
        scores = mine.score(X_test, y_test), other.score(X_test, y_test)
        rows.append((f"{load.__name__[5:]}, {kind}", *scores, seconds, their_seconds))

# %%
# Several labels per sample: the counterpart is one classifier per label.

multilabel = {
    "linear": (MultiLabelSVC(random_state=0), LinearSVC(random_state=0)),
    "RBF": (MultiLabelSVC(kernel="rbf", random_state=0), SVC()),
}
for name in ("emotions", "yeast"):
    train, test = datasets.load(name, "train"), datasets.load(name, "test")
    X, Y = train.X[:500], train.Y[:500]  # enough to see the point
    for kind, (ours, theirs) in multilabel.items():
        ours.fit(X[:50], Y[:50])
        mine, seconds = tuned(ours, X, Y, "f1_micro")
        other, their_seconds = tuned(OneVsRestClassifier(theirs), X, Y, "f1_micro")
        answers = mine.predict(test.X), other.predict(test.X)
        scores = (f1_score(test.Y, answer, average="micro") for answer in answers)
        rows.append((f"{name}, {kind}", *scores, seconds, their_seconds))

print(f"{'':22s}   score: ours  theirs    seconds: ours  theirs")
for name, mine, other, seconds, theirs in rows:
    print(
        f"{name:22s}         {mine:.3f}   {other:.3f}           "
        f"{seconds:6.2f}  {theirs:6.2f}"
    )

# %%
# Differences in score below one or two hundredths are noise on test parts of this
# size. On small tables scikit-learn takes less time. maxmargin is much faster on
# kernels with many labels and on text
# (:ref:`sphx_glr_auto_examples_labels_many_labels.py`).

names = [row[0] for row in rows]
fig, (left, right) = plt.subplots(1, 2, sharey=True, figsize=(8.4, 4))
left.barh(names, [mine - other for _, mine, other, *_ in rows], color="C0")
left.axvline(0, color="black", linewidth=0.8)
left.set(title="score minus that of scikit-learn", xlim=(-0.06, 0.06))
faster = [theirs / ours for *_, ours, theirs in rows]
right.semilogx(faster, names, "o", color="C1")
right.axvline(1, color="black", linewidth=0.8)
right.set(title="times faster; left of the line: slower")
right.grid(axis="y", color="0.92")
left.invert_yaxis()
plt.show()
