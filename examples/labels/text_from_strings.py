"""
From raw strings to a classifier
================================

Linear max-margin models suit text: many sparse columns, few of them in each document.
A `TfidfVectorizer` in front is enough, and the whole pipeline is saved as one file.
The texts are the docstrings of SciPy, and the task is to predict from the description
of a function the part of SciPy that it belongs to.
"""

import importlib
import re
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

import maxmargin
from maxmargin import MultiClassSVC

PARTS = """fft integrate interpolate linalg ndimage optimize signal sparse spatial
special stats""".split()
texts, parts = [], []
for part in PARTS:
    module = importlib.import_module(f"scipy.{part}")
    for name in module.__all__:
        about = getattr(module, name).__doc__ or ""
        # Only the prose: parameters and examples contain the name of the part.
        prose = re.split(r"\n\s*Parameters\s*\n", about)[0][:1500].replace(part, "")
        if len(prose) > 80:
            texts.append(prose)
            parts.append(part)
train, test, y_train, y_test = train_test_split(
    texts, parts, stratify=parts, random_state=0
)
print(len(texts), "functions;", f"{train[0].strip()[:70]!r} is in scipy.{y_train[0]}")

# %%
# Strings in, classes out. All models use the same columns.

models = {
    "MultiClassSVC": MultiClassSVC(C=1, random_state=0),
    "LinearSVC": LinearSVC(C=1, random_state=0),
    "LogisticRegression": LogisticRegression(C=10, max_iter=1000),
    "MultinomialNB": MultinomialNB(alpha=0.1),
    "most frequent": DummyClassifier(),
}
accuracy = {}
for name, model in models.items():
    pipeline = make_pipeline(
        TfidfVectorizer(sublinear_tf=True, stop_words="english"), model
    )
    accuracy[name] = pipeline.fit(train, y_train).score(test, y_test)
    print(f"{name:20s} {accuracy[name]:.3f}")
    if name == "MultiClassSVC":
        ours = pipeline

# %%
# The largest weights of each class.

words = ours[0].get_feature_names_out()
for part, weights in zip(ours[-1].classes_, ours[-1].coef_, strict=True):
    print(f"{part:12s} {', '.join(words[np.argsort(-weights)[:6]])}")

path = Path(tempfile.mkdtemp(), "scipy_parts.mm")
maxmargin.save(ours, path)
question = "Smallest eigenvalues of a symmetric matrix"
print(question, "->", maxmargin.load(path).predict([question])[0])

# %%
# The linear models are close to each other, and the order depends on the split. On a
# thousand short texts any of them is good enough. The difference in time grows with
# the data and the number of classes
# (:ref:`sphx_glr_auto_examples_labels_many_labels.py`).

plt.figure(figsize=(7.2, 2.6))
plt.barh(
    list(accuracy), list(accuracy.values()), color=["C0", "0.6", "0.6", "0.6", "0.8"]
)
for place, value in enumerate(accuracy.values()):
    plt.text(value + 0.01, place, f"{value:.3f}", va="center")
plt.gca().invert_yaxis()
plt.xlim(0, 1)
plt.xlabel("share of functions put into the right part of SciPy")
plt.show()
