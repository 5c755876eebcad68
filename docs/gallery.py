"""How the gallery is ordered and drawn."""

from __future__ import annotations

from pathlib import Path

# From a first look to special cases.
ORDER = (
    "text_from_strings",
    "many_labels",
    "joint_margin",
    "kernel_for_many_labels",
    "thresholds_for_f1",
    "sets_for_f1",
    "probabilities",
    "sets_with_a_promise",
    "what_carried_a_score",
    "zero_shot_animals",
    "prior_from_a_graph",
    "tree_of_labels",
    "mail_stream",
    "words",
    "bags",
    "small_models",
    "choosing_c",
    "reading_the_gap",
    "large_data",
    "another_runtime",
    "command_line",
    "beside_scikit_learn",
)
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
    """Key that sorts the files of a gallery; sphinx-gallery makes one for each folder."""

    def __init__(self, src_dir: str) -> None:
        self.src_dir = src_dir

    def __call__(self, filename: str) -> int:
        return ORDER.index(Path(filename).stem)

    def __repr__(self) -> str:
        return "Order"


def style(gallery_conf: dict, fname: str) -> None:
    """Set the look of the pictures before an example runs."""
    import matplotlib as mpl

    mpl.rcParams.update(STYLE)
