"""
Subjects for texts: hundreds of labels with a long tail
=======================================================

Subject indexing gives every document a few words of a large vocabulary. Most
subjects are rare, each document has few of them, and nobody reads more than the
first suggestions, so the measure is how many of the first k are right. As a
stand-in that needs no download, the documents are the descriptions of the functions
of NumPy, SciPy and scikit-learn, and the subjects of a function are the names of
its parameters.
"""

import importlib
import inspect
import re
import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import train_test_split
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.svm import LinearSVC

from maxmargin import MultiLabelSVC, metrics

MODULES = """numpy numpy.linalg numpy.fft numpy.ma scipy.fft scipy.integrate
scipy.interpolate scipy.linalg scipy.ndimage scipy.optimize scipy.signal
scipy.sparse scipy.sparse.linalg scipy.spatial scipy.spatial.distance scipy.special
scipy.stats sklearn.cluster sklearn.datasets sklearn.decomposition sklearn.ensemble
sklearn.feature_extraction.text sklearn.feature_selection sklearn.linear_model
sklearn.metrics sklearn.metrics.pairwise sklearn.model_selection sklearn.neighbors
sklearn.preprocessing sklearn.svm sklearn.tree sklearn.utils""".split()
documents = {}
for name in MODULES:
    module = importlib.import_module(name)
    for function in map(module.__dict__.get, dir(module)):
        about = inspect.getdoc(function) if callable(function) else None
        if about is None:
            continue
        text, *rest = re.split(r"\nParameters\n-+\n", about, maxsplit=1)
        block = re.split(r"\n\w[\w ]*\n-{3,}\n", rest[0])[0] if rest else ""
        subjects = re.findall(r"^(\w+) ?:", block, re.MULTILINE)
        if subjects:
            documents[text] = set(subjects)
binarizer = MultiLabelBinarizer(sparse_output=True)
Y = binarizer.fit_transform(documents.values())
common = np.flatnonzero(Y.sum(axis=0) >= 5)
Y = Y[:, common].toarray()
names = binarizer.classes_[common]
texts, texts_test, Y, Y_test = train_test_split(
    list(documents), Y, test_size=0.3, random_state=0
)
print(len(texts), "+", len(texts_test), "texts,", Y.shape[1], "labels,", end=" ")
print(f"{Y.sum(axis=1).mean():.1f} for each text")

# %%
# All labels are learnt together, in one pass over the texts at a time. `LinearSVC`
# learns the same model label by label; to compare like with like it minimises the
# same loss.

vectorizer = TfidfVectorizer(
    sublinear_tf=True, ngram_range=(1, 2), min_df=2, stop_words="english"
)
X, X_test = vectorizer.fit_transform(texts), vectorizer.transform(texts_test)
MultiLabelSVC().fit(
    X, Y
)  # a first fit loads the machine code, which is not to be timed
scores = {"most frequent": np.tile(Y.mean(axis=0), (len(Y_test), 1))}
one_by_one = OneVsRestClassifier(
    LinearSVC(loss="hinge", max_iter=10_000, random_state=0)
)
for name, model in {
    "LinearSVC per label": one_by_one,
    "MultiLabelSVC": MultiLabelSVC(random_state=0),
}.items():
    start = time.process_time()
    model.fit(X, Y)
    print(f"{name:20s} {time.process_time() - start:6.2f} s")
    scores[name] = model.decision_function(X_test)

places = range(1, 6)
for name, score in scores.items():
    found = [metrics.precision_at_k(Y_test, score, k) for k in places]
    print(f"{name:20s} P@1 {found[0]:.3f}   P@3 {found[2]:.3f}   P@5 {found[4]:.3f}")

# %%
# A suggestion for one text, true subjects marked. Scores order the subjects; where to
# stop is another question (:ref:`sphx_glr_auto_examples_thresholds_for_f1.py`).

row = int(
    np.argmax(
        (Y_test.sum(axis=1) == 4) & (np.array([len(text) for text in texts_test]) < 300)
    )
)
print(texts_test[row])
for label in np.argsort(-scores["MultiLabelSVC"][row])[:6]:
    print("  *" if Y_test[row, label] else "   ", names[label])

# %%
# The tail is long, and the head is what a constant answer gets right. Both linear
# models are the same model, so their curves lie on each other; the difference is the
# time.

fig, (left, right) = plt.subplots(1, 2)
left.loglog(np.sort(Y.sum(axis=0))[::-1] + 1, ".")
left.set(xlabel="label, by frequency", ylabel="training texts + 1", title="a long tail")
for (name, score), line in zip(scores.items(), ("0.6", "C1", "C0"), strict=True):
    curve = [metrics.precision_at_k(Y_test, score, k) for k in places]
    right.plot(
        places,
        curve,
        "o--" if name.startswith("Linear") else "o-",
        color=line,
        label=name,
    )
right.set(
    xlabel="k", xticks=places, title="share of the first k that is right", ylim=(0, 1)
)
right.legend()
plt.show()
