"""
A prior from a graph of labels
==============================

Often it is known which labels are related before any sample is labelled: a
thesaurus, a tree of products, a map of neighbours. From the graph's Laplacian L
comes a prior :math:`R = (I + b L)^{-1}`, under which neighbours share what they
learn. That helps where samples are few, and stops helping as they become many.

The labels here are the cells of a 5 x 5 map, and what is true of a cell is similar
in the cells beside it. The data are generated that way, so the prior is right. A
map with its cells mixed up still helps a little, since on a small map every cell
has something in common with every other; it helps less than the right one. Where
nothing is known beforehand, `priors.learned` finds a prior together with the weights.
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
# One noisy linear rule per cell, smooth over the map; four repetitions. Every prior
# gets the C that is best on a validation part.

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
