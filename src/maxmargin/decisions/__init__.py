"""From scores to decisions: calibrated probabilities, and sets of labels with a guarantee.

`maxmargin.Calibrated`, `maxmargin.LabelSets` and `maxmargin.TreeLabels` are defined here.
`consistent_labels` finds sets of labels that agree with a tree.
"""

from maxmargin.decisions.tree import consistent_labels

__all__ = ["consistent_labels"]
