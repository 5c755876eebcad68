"""
Which part carries the label
============================

The label of a whole is known, but not the part that shows it. Each bag here contains
one handwritten digit from 0 to 4 among digits from 5 to 9, and its label is that
digit. `LatentSVC` learns the classes and finds the part.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from maxmargin import LatentSVC, MultiClassSVC

images, digits = load_digits(return_X_y=True)
images = images / 16
rng = np.random.default_rng(0)
half = rng.permutation(len(images)) < len(images) // 2


def make(n, pool, size=5):
    """Return bags with one image of the class and `size` - 1 others, and its place."""
    low, high = (
        np.flatnonzero(pool & (digits < 5)),
        np.flatnonzero(pool & (digits >= 5)),
    )
    bags, y, place = [], [], rng.integers(size, size=n)
    for where in place:
        rows = rng.choice(high, size)
        rows[where] = rng.choice(low)
        bags.append(images[rows])
        y.append(digits[rows[where]])
    return bags, np.array(y), place


bags, y, place = make(400, half)
bags_test, y_test, place_test = make(400, ~half)

# %%
# Two models without a latent part for comparison: one uses the mean of each bag, and
# one receives the right part in training and test, which is the best possible.

latent = LatentSVC(C=1, random_state=0).fit(bags, y)
mean = MultiClassSVC(C=1, random_state=0).fit([bag.mean(axis=0) for bag in bags], y)
known = MultiClassSVC(C=1, random_state=0).fit(
    [bag[k] for bag, k in zip(bags, place, strict=True)], y
)
accuracy = {
    "mean of the bag": mean.score([bag.mean(axis=0) for bag in bags_test], y_test),
    "LatentSVC": latent.score(bags_test, y_test),
    "part given": known.score(
        [bag[k] for bag, k in zip(bags_test, place_test, strict=True)], y_test
    ),
}
found = latent.predict_latent(bags_test)
for name, value in accuracy.items():
    print(f"{name:18s} {value:.3f}")
share = np.mean(found == place_test)
print(f"the part is found in {100 * share:.1f} % of the bags (chance 20 %)")
print("objective after each round:", np.round(latent.objectives_, 2))

# %%
# Three bags with the part that the model chose. The problem is not convex: another
# start (``init``, ``n_init``) may lead to another solution, and the gap only bounds
# the gain of another round.

fig, axes = plt.subplots(3, 5, figsize=(7, 4.2))
for row, bag in enumerate(bags_test[:3]):
    for axis, image, part in zip(axes[row], bag, range(5), strict=True):
        axis.imshow(image.reshape(8, 8), cmap="gray_r")
        axis.set(xticks=[], yticks=[])
        chosen = part == found[row]
        axis.spines[:].set(
            visible=True, color="C0" if chosen else "0.85", linewidth=4 if chosen else 1
        )
    axes[row, 0].set_ylabel(
        f"class {y_test[row]}\nanswer {latent.predict(bags_test[row : row + 1])[0]}"
    )
plt.show()
