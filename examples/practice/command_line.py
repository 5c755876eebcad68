"""
The command line from end to end
================================

From a CSV file to a model, its score, predictions and a report, without Python. The
commands below are typed into a shell; the function `run` only prints their output.
"""

import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from maxmargin import datasets

folder = Path(tempfile.mkdtemp())


def run(command, shown=True):
    """Run one command in the folder, print it with its answer, return the answer."""
    print("$", command)
    words = [sys.executable, "-m", "maxmargin.cli", *shlex.split(command)[1:]]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    if shown:
        print(done.stdout + done.stderr)
    return done.stdout


# %%
# A table of measurements of pieces of music, with a 0/1 column for each emotion.

for part in ("train", "test"):
    data = datasets.load("emotions", part)
    table = pd.DataFrame(data.X, columns=data.feature_names)
    for name, column in zip(data.label_names, data.Y.T, strict=True):
        table[f"tag_{name}"] = column
    table.to_csv(folder / f"{part}.csv", index=False)
print(table.iloc[:3, [0, 1, -2, -1]])

# %%
# Describe the table, fit a model, and evaluate it on test rows.

run("maxmargin datasets info train.csv --label-prefix tag_")
run(
    "maxmargin fit train.csv --label-prefix tag_ --model multilabel "
    "--scale standard --C 0.1 -o music.mm"
)
run("maxmargin evaluate music.mm test.csv")

# %%
# Cross-validation beside scikit-learn's model with its default parameters. Other
# programs can read the output of `--json`.

answer = run(
    "maxmargin compare train.csv --label-prefix tag_ --model multilabel "
    "--scale standard --C 0.1 --folds 3 --json",
    shown=False,
)
lines = [json.loads(line) for line in answer.splitlines()]
means = [{k: v if k == "model" else v[0] for k, v in line.items()} for line in lines]
print(pd.DataFrame(means).set_index("model").round(3).T)

# %%
# Predictions as sets or scores, and a report.

run("maxmargin predict music.mm test.csv --to jsonl -o answers.jsonl")
run("maxmargin predict music.mm test.csv --scores -o scores.csv")
run("maxmargin report music.mm test.csv --train train.csv -o music.html")
print("\n".join((folder / "answers.jsonl").read_text().splitlines()[:3]))
print(sorted(path.name for path in folder.iterdir()))

# %%
# Plot the scores.

scores = pd.read_csv(folder / "scores.csv")
truth = table.filter(like="tag_").to_numpy().astype(bool)
fig, axes = plt.subplots(2, 3, sharex=True, sharey=True, figsize=(8, 4))
for axis, name, values, on in zip(
    axes.flat, data.label_names, scores.to_numpy().T, truth.T, strict=True
):
    bins = np.linspace(-2.5, 2.5, 26)
    axis.hist(
        [values[~on], values[on]],
        bins,
        stacked=True,
        color=["0.8", "C0"],
        label=["without", "with it"],
    )
    axis.axvline(0, color="black", linewidth=0.8)
    axis.set_title(name)
axes[0, 0].legend()
fig.supxlabel("score; above zero the label is predicted")
fig.supylabel("pieces of the test part")
plt.show()
