"""
Sorting mail into folders, one message at a time
================================================

The stream that comes with the package is a real mailbox without its words: 2364 messages in the
order of their dates, each as the numbers of the words that occur in it, in 11 folders. Nothing is
known beforehand, not even which folders there are.
"""

# %%
# Each round ranks the folders known so far and then learns the right one. The first message of a
# folder cannot be right, so those are counted apart.

import numpy as np
from sklearn.preprocessing import normalize

from maxmargin import LabelRanker
from maxmargin.datasets import load

data = load("mail-stream")
settings = {"squared": {"C": 1.0, "margin": 1.0}, "entropy": {"C": 1.0, "margin": 0.003}}
curves = {}
for regulariser, setting in settings.items():
    for update in ("fixed", "worst_pair", "all_pairs"):
        ranker = LabelRanker(update, regulariser, trace=True, **setting).partial_fit(data.X, data.Y)
        curves[f"{regulariser}, {update}"] = np.cumsum(ranker.trace_["mistake"])
        print(
            f"{regulariser:8s} {update:11s} {ranker.n_mistakes_:4d} mistakes in {ranker.n_rounds_} rounds, "
            f"{ranker.n_first_mistakes_} of them on the first message of a folder"
        )

# %%
# The number of mistakes is bounded by what any fixed competitor pays: the weights of a ranker
# trained on the whole mailbox with hindsight, for instance. With messages of unit length, C = 1/2
# makes the bound as tight as it gets.

X = normalize(data.X)
online = LabelRanker(C=0.5).partial_fit(X, data.Y, classes=np.unique(data.Y))
hindsight = LabelRanker(C=0.5, max_iter=100, tol=0.01, random_state=0).fit(X, data.Y)
bound = online.mistake_bound(hindsight.coef_, X, data.Y)
print(f"{online.n_mistakes_} mistakes, and at most {bound:.0f} by the competitor's objective")

# %%
# Mistakes over time.

import matplotlib.pyplot as plt  # noqa: E402

for name, mistakes in curves.items():
    plt.plot(mistakes, "-" if name.startswith("entropy") else "--", label=name)
plt.xlabel("messages")
plt.ylabel("mistakes")
plt.legend()
plt.show()
