"""
Explain a score
===============

A score is a sum, and ``explain`` returns its largest terms: features times weights of
a linear model or, with a kernel, similar training rows. The terms, the rest and the
bias add up to the score.

Here the samples are titles of publications, the labels subjects, and a term is a word.
"""

import matplotlib.pyplot as plt

from maxmargin import MultiLabelSVC, datasets

train, test = datasets.load("yso-sample", "train"), datasets.load("yso-sample", "test")
often = train.Y.sum(axis=0).argsort()[::-1][:20]
Y = train.Y[:, often]
kept = Y.sum(axis=1) > 0
subjects = [train.label_names[k] for k in often]
model = MultiLabelSVC(C=1.0, random_state=0).fit(train.X[kept], Y[kept])

scores = model.decision_function(test.X)
rows = scores.max(axis=1).argsort()[::-1][:3]
answers = model.explain(test.X[rows], top=4, names=train.feature_names)
for row, each in zip(rows, answers, strict=True):
    print(test.per_row["text"][row])
    print(f"{subjects[each.label]}:", str(each).partition("\n")[2], sep="\n")

# %%
# The same as a figure: green terms are positive, red ones negative.

fig, axes = plt.subplots(1, 3, sharex=True)
for axis, each in zip(axes, answers, strict=True):
    parts = [*each.parts, ("all others", each.rest), ("bias", each.bias)]
    names, values = zip(*parts, strict=True)
    colours = ["tab:green" if value > 0 else "tab:red" for value in values]
    axis.barh(range(len(names)), values, color=colours)
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.set_title(f"{subjects[each.label]}: {each.score:+.2f}")
plt.show()
