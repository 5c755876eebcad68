"""
Zero-shot prediction of categories
==================================

A classifier of attributes ("has hooves", "swims") is trained on pictures of some
animals and tested on pictures of others, of which only the attributes are known. The
prior of `priors.from_categories` contains which attributes occur together
among the new animals, and `predict_category` finds the animal that fits best.

The pictures are generated: each attribute affects the features, with much noise. The
results page has the experiment on photographs of 50 animals
(``experiments/zero_shot_awa.py``).
"""

import matplotlib.pyplot as plt
import numpy as np

from maxmargin import MultiLabelSVC, priors

N_ATTRIBUTES, N_SEEN, N_UNSEEN, N_FEATURES = 20, 12, 5, 60


def world(seed):
    """Pictures of the seen animals to train on, and of the others."""
    rng = np.random.default_rng(seed)
    animals = rng.integers(2, size=(N_SEEN + N_UNSEEN, N_ATTRIBUTES))
    seen, unseen = animals[:N_SEEN], animals[N_SEEN:]
    mix = rng.normal(size=(N_ATTRIBUTES, N_FEATURES))

    def pictures(attributes):
        return (2 * attributes - 1) @ mix + 12 * rng.normal(
            size=(len(attributes), N_FEATURES)
        )

    Y = seen[rng.integers(N_SEEN, size=300)]
    which = rng.integers(N_UNSEEN, size=300)
    return pictures(Y), Y, pictures(unseen[which]), which, unseen


right = {"one SVM per attribute": [], "prior of the unseen": []}
wrong = {name: [] for name in right}
for seed in range(10):
    X, Y, X_new, which, unseen = world(seed)
    prior = priors.from_categories(unseen, shrinkage=0.1)
    for name, R in zip(right, (None, prior), strict=True):
        model = MultiLabelSVC(C=1e-4, prior=R, fit_intercept=False, random_state=0).fit(
            X, Y
        )
        right[name].append(np.mean(model.predict_category(X_new, unseen) == which))
        wrong[name].append(np.mean(model.predict(X_new) != unseen[which]))
for name in right:
    print(
        f"{name:22s} {100 * np.mean(wrong[name]):4.1f} % of the attributes wrong, "
        f"{100 * np.mean(right[name]):4.1f} % of the animals found (chance 20 %)"
    )

# %%
# Left: the correlations of the prior. Right: ten random problems, each a line from the
# model without to the model with the prior. The prior improves the attributes, but not
# the choice among the five animals: this choice sums over all attributes, so that
# their errors cancel without a prior too.

fig, (left, middle) = plt.subplots(1, 2, figsize=(8, 3.6))
image = left.imshow(prior, cmap="RdBu_r", vmin=-1, vmax=1)
fig.colorbar(image, ax=left)
left.set(title="prior R of the unseen animals", xlabel="attribute", ylabel="attribute")
for pair in zip(*wrong.values(), strict=True):
    middle.plot(
        [0, 1], pair, "o-", color="C0" if pair[1] < pair[0] else "C3", alpha=0.6
    )
middle.axhline(0.5, color="0.7", linestyle="--")
middle.text(0.4, 0.51, "guessing", color="0.5")
middle.set_xticks([0, 1], list(wrong))
middle.set(title="share of attributes that are wrong", xlim=(-0.3, 1.3), ylim=(0, 0.6))
plt.show()
