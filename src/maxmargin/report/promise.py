"""Whether sets of labels hold what was promised, and how large they are."""

from __future__ import annotations

import numpy as np

from maxmargin.report import pictures
from maxmargin.report.page import picture, table, text
from maxmargin.report.subject import Promise, Subject, indicator


def promise(subject: Subject, promised: Promise) -> str:
    """What was promised and found, and the sizes of the sets beside the numbers of true labels."""
    truth, given = indicator(subject.truth), indicator(subject.predicted)
    assert truth is not None and given is not None
    what = {
        "recall": "share of the true labels that are in the set",
        "precision": "share of the labels in the set that are true",
    }[promised.kind]
    scatter = 1 / np.sqrt(min(promised.n_calibration, len(truth)))
    words = (
        f"Promised in the mean over samples drawn alike, with thresholds from {promised.n_calibration} "
        "samples that the model had not seen. One fit and one test part scatter around it by about "
        f"{scatter:.2f}; far below it, the test samples are drawn in another way than the training samples."
    )
    sizes, true = given.sum(axis=1), truth.sum(axis=1)
    rows = [
        [f"{what}: promised", promised.share],
        ["found on the test samples", promised.found],
        ["labels in a set, mean", float(sizes.mean())],
        ["labels in a set, median", float(np.median(sizes))],
        ["largest set", int(sizes.max())],
        ["empty sets", int((sizes == 0).sum())],
        ["true labels of a sample, mean", float(true.mean())],
    ]
    caption = "How many samples have sets, and true labels, of each size: large sets are the price."
    shown = picture(pictures.sizes(sizes, true), caption)
    return text(words) + table(["sets of labels", "value"], rows) + shown
