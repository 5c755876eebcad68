"""
More rows, more labels
======================

How time grows with the data, and how to train on rows larger than memory. Sparse rows
stay sparse, single precision stays single, and a memory-mapped file is read in place.
"""

import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC

from maxmargin import LabelRanker, MultiLabelSVC

N_WORDS, N_LABELS = 20_000, 40
rng = np.random.default_rng(0)
topics = rng.normal(size=(N_LABELS, N_WORDS)).astype(np.float32)


def texts(n, words=60):
    """Rows of `words` words each, and noisy labels that depend on them."""
    columns = (N_WORDS * rng.random(n * words) ** 3).astype(np.int32)
    starts = np.arange(0, n * words + 1, words, dtype=np.int32)
    X = sp.csr_array((np.ones(n * words, np.float32), columns, starts), (n, N_WORDS))
    X.sum_duplicates()
    X /= np.sqrt(X.multiply(X).sum(axis=1))[:, None]
    scores = X @ topics.T
    return sp.csr_array(X), (scores + 0.5 * rng.normal(size=scores.shape) > 1).astype(
        np.int8
    )


def seconds(model, X, Y):
    start = time.process_time()
    model.fit(X, Y)
    return time.process_time() - start


# %%
# The same loss label by label and together. Time per row and pass is constant, and
# larger data need no more passes.

sizes = [1000, 2000, 4000, 8000]
X, Y = texts(sizes[-1])
MultiLabelSVC().fit(
    X[:1000], Y[:1000]
)  # loads the machine code, which is not to be timed
ours, theirs = [], []
for n in sizes:
    model = MultiLabelSVC(random_state=0)
    ours.append(seconds(model, X[:n], Y[:n]))
    theirs.append(
        seconds(
            OneVsRestClassifier(LinearSVC(loss="hinge", random_state=0)), X[:n], Y[:n]
        )
    )
    print(
        f"{n:6d} rows   {ours[-1]:6.2f} s in {model.n_iter_} epochs "
        f"(gap {model.duality_gap_:.0e})   LinearSVC {theirs[-1]:6.2f} s"
    )

# %%
# Rows on disk: a dense matrix in single precision, memory-mapped.

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "rows.npy")
    np.save(path, X[:4000, :500].toarray())
    mapped = np.load(path, mmap_mode="r")
    model = MultiLabelSVC(random_state=0).fit(mapped, Y[:4000])
    print(
        type(mapped).__name__,
        mapped.dtype,
        f"{mapped.nbytes / 2**20:.0f} MiB, gap {model.duality_gap_:.0e}",
    )
    del mapped

# %%
# Rows in batches: the ranker learns from each batch and discards it.

ranker = LabelRanker(n_features=N_WORDS)
start = time.process_time()
for first in range(0, sizes[-1], 2000):
    ranker.partial_fit(X[first : first + 2000], Y[first : first + 2000])
print(f"{ranker.n_rounds_} rows in pieces: {time.process_time() - start:.2f} s")

plt.loglog(sizes, ours, "o-", label="MultiLabelSVC, all labels together")
plt.loglog(
    sizes, theirs, "o-", color="0.5", label="LinearSVC(loss='hinge'), label by label"
)
plt.xlabel(f"rows of {N_WORDS} sparse columns, {N_LABELS} labels")
plt.ylabel("seconds to fit")
plt.xticks(sizes, sizes)
plt.minorticks_off()
plt.legend()
plt.show()
