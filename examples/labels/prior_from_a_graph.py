"""
A prior from a graph of labels
==============================

A thesaurus, a tree of products or a map often shows which labels are related before
any sample is labelled. The graph's Laplacian L gives the prior
:math:`R = (I + b L)^{-1}`, under which neighbours share information. It helps with
few samples.

The labels here are the cells of a 5 x 5 map, and neighbouring cells have similar
labels by construction. A map with shuffled cells helps less than the right one.
Without prior knowledge, `priors.learned` estimates a prior together with the weights.
"""

import matplotlib.pyplot as plt
import numpy as np

from maxmargin import MultiLabelSVC, priors

SIDE = 5
cells = np.array([(r, c) for r in range(SIDE) for c in range(SIDE)])
adjacent = (np.abs(cells[:, None] - cells[None]).sum(axis=2) == 1).astype(float)


def from_graph(adjacency, b=10.0):
    """The inverse of I + b L, L the Laplacian of the graph, with a unit diagonal."""
    laplacian = np.diag(adjacency.sum(axis=1)) - adjacency
    return priors.normalise(np.linalg.inv(np.eye(len(adjacency)) + b * laplacian))


right = from_graph(adjacent)
mixed = np.random.default_rng(0).permutation(len(cells))
candidates = {
    "no prior": None,
    "prior of the map": right,
    "prior of a wrong map": right[np.ix_(mixed, mixed)],
    "learned prior": "learned",
}


def fitted(C, R, X, Y):
    """The model, and before it the prior if that is to be learned."""
    base = MultiLabelSVC(C=C, tol=1e-2, random_state=0)
    if isinstance(R, str):
        R = priors.learned(base, X, Y, n_rounds=2)
    return base.set_params(prior=R).fit(X, Y)


# %%
# One noisy linear rule per cell, smooth over the map; four repetitions. C is chosen
# for every prior on a validation part.

sizes = [15, 30, 60, 120, 240, 480]
CS = (0.003, 0.03)
found = {name: np.zeros((4, len(sizes))) for name in candidates}
for repetition in range(4):
    rng = np.random.default_rng(repetition)
    weights = np.linalg.cholesky(right) @ rng.normal(size=(len(cells), 40))
    X = rng.normal(size=(1500, 40))
    Y = (X @ weights.T + 4 * rng.normal(size=(1500, len(cells))) > 0).astype(int)
    for place, n in enumerate(sizes):
        for name, R in candidates.items():
            models = [fitted(C, R, X[:n], Y[:n]) for C in CS]
            best = max(
                models,
                key=lambda model: np.mean(model.predict(X[500:800]) == Y[500:800]),
            )
            found[name][repetition, place] = np.mean(best.predict(X[800:]) == Y[800:])
for name, values in found.items():
    print(
        f"{name:22s}",
        "  ".join(
            f"{n:3d}: {v:.3f}" for n, v in zip(sizes, values.mean(axis=0), strict=True)
        ),
    )

fig, (left, middle) = plt.subplots(1, 2, figsize=(8.6, 3.7), width_ratios=(1, 1.4))
image = left.imshow(
    right[len(cells) // 2].reshape(SIDE, SIDE), cmap="Blues", vmin=0, vmax=1
)
fig.colorbar(image, ax=left)
left.set(title="correlation with the cell in the middle", xticks=[], yticks=[])
for (name, values), color in zip(found.items(), ("0.5", "C0", "C3", "C2"), strict=True):
    middle.errorbar(
        sizes,
        values.mean(axis=0),
        values.std(axis=0),
        color=color,
        label=name,
        capsize=2,
    )
middle.set(
    xscale="log",
    xlabel="training samples",
    ylabel="share of right entries",
    xticks=sizes,
    xticklabels=sizes,
)
middle.minorticks_off()
middle.legend()
plt.show()
