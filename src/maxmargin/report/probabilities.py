"""How far the probabilities of a model can be believed."""

from __future__ import annotations

from typing import Any

import numpy as np

from maxmargin.metrics import label_brier, label_log_loss, reliability
from maxmargin.report import pictures
from maxmargin.report.page import picture, table, text
from maxmargin.report.subject import Subject, indicator


def probabilities(subject: Subject) -> str:
    """Losses beside those of the shares of the labels, and the reliability diagram."""
    truth, found = _on(subject, subject.truth), np.asarray(subject.probabilities)
    trained = subject.training_labels is not None
    share = truth.mean(axis=0)
    if trained:
        known = _on(subject, subject.training_labels)
        share = (known.sum(axis=0) + 1) / (len(known) + 2)  # a label may be new to the test samples
    share = np.broadcast_to(np.clip(share, 1e-12, 1 - 1e-12), truth.shape)
    rows = [
        ["log loss", label_log_loss(truth, found), label_log_loss(truth, share)],
        ["Brier score", label_brier(truth, found), label_brier(truth, share)],
    ]
    words = (
        "The means over all samples and labels; less is better. Beside them what the share of each label in "
        f"the {'training' if trained else 'test'} samples would get, told for every sample: probabilities "
        "that are worse tell nothing."
    )
    told, seen, counts = reliability(truth, found)
    caption = (
        "Of the labels that were told with a probability, how many are true: on the line, as many as told. "
        "The size of a point is the number of labels there."
    )
    return (
        text(words)
        + table(["measure", "maxmargin", "shares of the labels"], rows)
        + picture(pictures.reliability(told, seen, counts), caption)
    )


def _on(subject: Subject, labels: Any) -> np.ndarray:
    """Labels as a 0/1 matrix with a column for every probability."""
    found = indicator(labels)
    if found is None:
        found = (np.asarray(labels)[:, None] == np.asarray(subject.model.classes_)).astype(int)
    return found
