"""
Words of handwritten characters
===============================

`ChainSVC` labels all positions of a sequence together: it learns the appearance of
each character and which characters follow each other. Ten letters are drawn with the
handwritten digits of scikit-learn, blurred by noise, and spell English words. The test
has the same words in other handwriting.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.kernel_approximation import Nystroem
from sklearn.svm import SVC

from maxmargin import ChainSVC, MultiClassSVC, metrics

LETTERS = "aeilnorstd"
WORDS = """note tone stone store rain train trains rail trail trails sail nail tail
late slate tales least steal seat east sand land island stand tread trade ready
dealt deal ideal loan salon lesson listen silent tin line liner dinner sinner tennis
season reason treason radio ratio nation station ration relation dose nose rose lose
lost roast toast coast atone alone loner drone drain adore dear read lead leader
trader sailor tailor sonar solar dollar rattle settle tilt lint lilt stilt salt
salad lad sad saddle riddle ladder adder order rodeo stereo""".split()
WORDS = sorted({word for word in WORDS if set(word) <= set(LETTERS)})

images, digits = load_digits(return_X_y=True)
rng = np.random.default_rng(0)
half = (
    rng.permutation(len(images)) < len(images) // 2
)  # other handwriting in the two parts


def write(words, pool, times=3):
    """Each word a few times, every letter another image with noise on it."""
    X, y = [], []
    for word in np.repeat(words, times):
        rows = [
            rng.choice(np.flatnonzero(pool & (digits == LETTERS.index(letter))))
            for letter in word
        ]
        X.append(images[rows] / 16 + 0.35 * rng.normal(size=(len(rows), 64)))
        y.append(str(word))
    return X, y


X, y = write(WORDS, half)
X_test, y_test = write(WORDS, ~half)
print(
    len(y),
    "words to learn from,",
    len(y_test),
    "to read, for example",
    y_test[0],
    y_test[-1],
)

# %%
# The chain beside classifiers of single characters. A chain is linear in its features;
# a kernel map in front gives it the features of a kernel model.

letters, stacked = list("".join(y)), np.concatenate(X)
kernel_map = Nystroem(gamma=0.02, n_components=200, random_state=0).fit(stacked)
mapped, mapped_test = (
    [kernel_map.transform(word) for word in part] for part in (X, X_test)
)
answers = {}
for name, model in {
    "MultiClassSVC, each letter alone": MultiClassSVC(C=0.1, random_state=0),
    "SVC, RBF, each letter alone": SVC(C=10, gamma=0.02),
}.items():
    model.fit(stacked, letters)
    answers[name] = ["".join(model.predict(word)) for word in X_test]
chain = ChainSVC(C=0.1, random_state=0).fit(X, y)
answers["ChainSVC"] = chain.predict(X_test)
answers["ChainSVC on a kernel map"] = (
    ChainSVC(C=10, random_state=0).fit(mapped, y).predict(mapped_test)
)
for name, answer in answers.items():
    right = [
        f(y_test, answer) for f in (metrics.letter_accuracy, metrics.word_accuracy)
    ]
    print(f"{name:34s} letters {100 * right[0]:5.1f} %   words {100 * right[1]:5.1f} %")
print(
    "the three best readings of",
    y_test[0],
    [word for word, score in chain.predict_kbest(X_test[:1], k=3)[0]],
)

# %%
# A word that the neighbours decide, and the learned transitions.

alone = answers["MultiClassSVC, each letter alone"]
rescued = [
    len(true) == 6 and a == true != b
    for a, b, true in zip(answers["ChainSVC"], alone, y_test, strict=True)
]
shown = int(np.argmax(rescued))
fig = plt.figure(figsize=(8, 4.2))
left, right = fig.subfigures(1, 2, width_ratios=(1.1, 1))
axes = left.subplots(2, 3).flat
for axis, image, one, other in zip(
    axes, X_test[shown], alone[shown], answers["ChainSVC"][shown], strict=True
):
    axis.imshow(image.reshape(8, 8), cmap="gray_r")
    axis.set(xticks=[], yticks=[], title=other)
    axis.set_xlabel(one, color="black" if one == other else "C3")
left.suptitle("above: the chain; below: each letter alone", size="medium")
axis = right.subplots()
largest = np.abs(chain.transitions_).max()
axis.imshow(chain.transitions_, cmap="RdBu_r", vmin=-largest, vmax=largest)
axis.set_xticks(range(10), chain.classes_)
axis.set_yticks(range(10), chain.classes_)
axis.set(xlabel="next letter", ylabel="letter", title="transitions")
plt.show()
