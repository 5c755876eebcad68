"""From scores to decisions: probabilities that can be believed, and sets of labels with a promise.

`maxmargin.Calibrated`, `maxmargin.LabelSets` and `maxmargin.TreeLabels` live here; `consistent_labels`
finds sets of labels that agree with a tree.
"""

from maxmargin.decisions.tree import consistent_labels

__all__ = ["consistent_labels"]
