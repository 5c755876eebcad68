"""Order and style of the gallery."""

from __future__ import annotations

from pathlib import Path

# Sections, and the examples of each, from introductions to special cases.
SECTIONS = {
    "labels": (
        "text_from_strings", "many_labels", "kernel_for_many_labels", "thresholds_for_f1", "sets_for_f1",
        "zero_shot_animals", "prior_from_a_graph", "tree_of_labels",
    ),
    "models": ("joint_margin", "words", "bags", "mail_stream", "small_models"),
    "decisions": ("probabilities", "sets_with_a_promise", "what_carried_a_score"),
    "practice": (
        "choosing_c", "reading_the_gap", "large_data", "another_runtime", "command_line",
        "beside_scikit_learn",
    ),
}  # fmt: skip
ORDER = [name for names in SECTIONS.values() for name in names]
STYLE = {
    "figure.figsize": (7.2, 3.9),
    "figure.dpi": 110,
    "figure.constrained_layout.use": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": "medium",
    "legend.frameon": False,
    "font.size": 10,
}


class Order:
    """Sort key of sphinx-gallery for the files of a section."""

    def __init__(self, src_dir: str) -> None:
        self.src_dir = src_dir

    def __call__(self, filename: str) -> int:
        return ORDER.index(Path(filename).stem)

    def __repr__(self) -> str:
        return "Order"


def style(gallery_conf: dict, fname: str) -> None:
    """Set the style of the figures before an example runs."""
    import matplotlib as mpl

    mpl.rcParams.update(STYLE)
