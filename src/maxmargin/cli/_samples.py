"""A data set as a model family takes it: rows, labels, and the cut into sequences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maxmargin.cli._families import Family
    from maxmargin.datasets import Dataset


@dataclass(frozen=True)
class Samples:
    """Rows and labels; `lengths` cut stacked rows into sequences, `texts` say what each row is."""

    X: Any
    y: Any
    label_names: tuple[str, ...]
    feature_names: tuple[str, ...]
    lengths: Any = None
    texts: Any = None

    @property
    def cut(self) -> dict[str, Any]:
        """The further argument that estimators of sequences take."""
        return {} if self.lengths is None else {"lengths": self.lengths}

    def take(self, rows: Any) -> Samples:
        """Some samples (whole sequences, where there are any)."""
        import numpy as np

        if self.lengths is None:
            texts = None if self.texts is None else self.texts[rows]
            return Samples(self.X[rows], self.y[rows], self.label_names, self.feature_names, texts=texts)
        starts = np.cumsum(self.lengths) - self.lengths
        inside = np.concatenate([np.arange(starts[k], starts[k] + self.lengths[k]) for k in rows])
        return Samples(
            self.X[inside], self.y[inside], self.label_names, self.feature_names, self.lengths[rows]
        )

    def __len__(self) -> int:
        return self.X.shape[0] if self.lengths is None else len(self.lengths)


def samples(data: Dataset, family: Family) -> Samples:
    """Check that the data suits a family and lay it out for it."""
    import numpy as np

    single = family.task in ("multiclass", "chain")
    if single and data.multilabel:
        raise ValueError(
            f"{data.name or data.source} has several labels per sample, and --model {family.name} takes one; "
            "use --model multilabel."
        )
    if family.task == "multilabel" and not data.multilabel:
        raise ValueError(
            f"{data.name or data.source} has one class per sample, and --model {family.name} takes several "
            "labels; use --model multiclass."
        )
    if data.X.shape[1] == 0:
        raise ValueError(f"{data.name or data.source} has no feature columns left.")
    if (
        data.multilabel
        and data.Y.dtype.kind == "f"
        and np.isnan(data.Y).any()
        and family.name != "multilabel"
    ):
        raise ValueError("Some label entries are missing; only --model multilabel takes that.")
    if hasattr(data.X, "data") and np.isnan(getattr(data.X, "data", data.X)).any():
        raise ValueError(
            f"{data.name or data.source} has missing feature values; fill them in or leave their columns out "
            "with --drop."
        )
    lengths = None
    if family.task == "chain":
        if "word" not in data.per_row:
            raise ValueError("--model chain needs sequences: a letter.data file or the data set ocr-letters.")
        lengths = sequence_lengths(data)
    texts = data.per_row.get("text", data.per_row.get("file"))
    return Samples(data.X, data.Y, data.label_names, data.feature_names, lengths, texts)


def sequence_lengths(data: Dataset) -> Any:
    """Positions of each word of a data set of letters."""
    import numpy as np

    word = data.per_row["word"]
    ends = np.flatnonzero(np.append(word[1:] != word[:-1], True))
    return np.diff(np.concatenate(([-1], ends)))
