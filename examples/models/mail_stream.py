"""
Sorting mail into folders, one message at a time
================================================

The package ships a real mailbox without its words: 2364 messages in the order of their
dates, each as the numbers of its words, in 11 folders. The folders are not known in
advance. Each round ranks the folders seen so far and then learns the right one.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import SGDClassifier
from sklearn.preprocessing import normalize

from maxmargin import LabelRanker
from maxmargin.datasets import load

data = load("mail-stream")
folders = np.unique(data.Y)

# %%
# The three updates of the paper, and the default, which gives rare words more weight
# in rows of zeros and ones. The first message of a folder is always a mistake, so
# these are counted apart.

curves = {}
for name, settings in {
    "fixed": {"update": "fixed", "weighting": None},
    "worst pair": {"update": "worst_pair", "weighting": None},
    "all pairs": {"update": "all_pairs", "weighting": None},
    "all pairs, rare words count more": {},
}.items():
    ranker = LabelRanker(trace=True, **settings).partial_fit(data.X, data.Y)
    curves[name] = np.cumsum(ranker.trace_["mistake"])
    print(
        f"{name:34s} {ranker.n_mistakes_:4d} mistakes in {ranker.n_rounds_} rounds, "
        f"{ranker.n_first_mistakes_} of them on the first message of a folder"
    )

# %%
# For comparison: scikit-learn's online classifier, which needs all folders before the
# first message, and the rule that a message goes where the previous one went.

X = normalize(data.X)
sgd, mistakes = SGDClassifier(random_state=0), [True]
sgd.partial_fit(X[:1], data.Y[:1], classes=folders)
for row in range(1, X.shape[0]):
    mistakes.append(sgd.predict(X[row : row + 1])[0] != data.Y[row])
    sgd.partial_fit(X[row : row + 1], data.Y[row : row + 1])
curves["SGDClassifier"] = np.cumsum(mistakes)
curves["the folder of the message before"] = np.cumsum(
    np.r_[True, data.Y[1:] != data.Y[:-1]]
)
for name in list(curves)[4:]:
    print(f"{name:34s} {curves[name][-1]:4d} mistakes")

# %%
# The objective of any fixed weights bounds the number of mistakes, for example of
# weights trained on the whole mailbox. With messages of unit length, C = 1/2 makes the
# bound tightest.

online = LabelRanker(C=0.5).partial_fit(X, data.Y, classes=folders)
hindsight = LabelRanker(C=0.5, max_iter=100, tol=0.01, random_state=0).fit(X, data.Y)
bound = online.mistake_bound(hindsight.coef_, X, data.Y)
print(online.n_mistakes_, f"mistakes; the competitor allows at most {bound:.0f}")

# %%
# Mistakes over time.

for place, (name, mistakes) in enumerate(curves.items()):
    color = f"C{place}" if place < 4 else str(0.3 * place - 0.9)
    plt.plot(mistakes, color=color, label=f"{name}: {mistakes[-1]}")
plt.xlabel("messages")
plt.ylabel("mistakes so far")
plt.ylim(0, 700)
plt.legend()
plt.show()
