"""Draw the shipped titles: `MAXMARGIN_DATA=... python -m experiments.data.yso_sample`.

From yso-titles (titles of Finna.fi, CC0, with subjects of the General Finnish Ontology): titles of at
most 120 letters with three subjects or more; of these subjects the 1200 that their own titles name most
often, without those whose name needs a remark in parentheses; then the first 6000 titles that have three
subjects or more among the 1200, and of their subjects those that occur five times or more. The first 4500
titles train.
"""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

from maxmargin.io.files import text_lines
from maxmargin.io.registry import Folder, folder

from .pack import pack_texts

LETTERS = 120
LEAST = 3
SUBJECTS = 1200
TITLES, TRAIN = 6000, 4500
OFTEN = 5
TARGET = Path(__file__).parents[2] / "src" / "maxmargin" / "io" / "data" / "yso-sample.npz.xz"


def draw(place: Folder) -> tuple[list[str], list[list[int]], list[str]]:
    """Return titles, the numbers of their subjects, and the names; subjects with the same name are joined."""
    rows = (line.rstrip("\n").split("\t") for _, line in text_lines(place.file("labels.tsv"), "utf-8"))
    name = {row[0]: row[2] for row in rows}
    titles = []
    for _, line in text_lines(place.file("texts.tsv"), "utf-8"):
        numbers, _, title = line.rstrip("\n").partition("\t")
        subjects = sorted({name[number] for number in numbers.split(",")})
        if len(title) <= LETTERS and len(subjects) >= LEAST:
            titles.append((title, subjects))
    named = Counter(
        subject
        for title, subjects in titles
        for subject in subjects
        if "(" not in subject and subject in title.lower()
    )
    chosen = {subject for subject, _ in named.most_common(SUBJECTS)}
    among = ((title, [each for each in subjects if each in chosen]) for title, subjects in titles)
    first = list(itertools.islice((row for row in among if len(row[1]) >= LEAST), TITLES))
    count = Counter(subject for _, subjects in first for subject in subjects)
    often = sorted(subject for subject in count if count[subject] >= OFTEN)
    number = {subject: k for k, subject in enumerate(often)}
    kept = [(title, [number[each] for each in subjects if each in number]) for title, subjects in first]
    kept = [(title, labels) for title, labels in kept if labels]
    return [title for title, _ in kept], [labels for _, labels in kept], often


if __name__ == "__main__":
    texts, labels, names = draw(folder("yso-titles"))
    pack_texts(texts, labels, names, TRAIN, TARGET)
