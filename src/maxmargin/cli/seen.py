"""Whether the samples that a model is judged on are those that it was trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from maxmargin.cli.data import ReadOptions, Samples

if TYPE_CHECKING:
    import numpy as np

    from maxmargin.cli.models import Stored

# Odd numbers of splitmix64, whose steps spread every bit over all others.
STEP, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB

SAYS = "the figures say little of new ones. To judge it,"
HOLD_OUT = "give samples that were held out of the fit, or cross-validate it with maxmargin compare"


@dataclass(frozen=True)
class Seen:
    """Which of the samples judged are known to be training samples, and words on it, empty for none."""

    which: str = "none known"
    words: str = ""

    @property
    def lines(self) -> list[str]:
        return [self.words] if self.words else []


def fingerprint(X: Any) -> str:
    """One number for all rows together, whatever their order, dense or sparse, in single or double precision.

    It says whether two tables have the same rows, and nothing of any one of them.
    """
    import numpy as np

    from maxmargin.core.kernels import chunks

    sparse = hasattr(X, "tocsr")
    X = X.tocsr() if sparse else X
    n, width = X.shape
    weights = _spread(np.arange(1, width + 1, dtype=np.uint64) * np.uint64(STEP)) | np.uint64(1)
    filled = X.nnz // max(n, 1) + 1 if sparse else width
    total = np.zeros(1, np.uint64)
    for rows in chunks(n, 8 * filled):
        total += _spread(_row_numbers(X[rows], weights) + np.uint64(STEP)).sum()
    return f"{int(total[0]):016x}"


def _row_numbers(X: Any, weights: np.ndarray) -> np.ndarray:
    """A number for every row: the sum of those of its entries, in which a zero counts nothing."""
    import numpy as np

    if X.dtype == object:
        from hashlib import blake2b

        told = ["\x1f".join(map(str, row)).encode("utf-8", "surrogatepass") for row in X]
        numbers = [int.from_bytes(blake2b(row, digest_size=8).digest(), "little") for row in told]
        return np.array(numbers, np.uint64)
    if hasattr(X, "tocsr"):
        terms = _spread(_bits(X.data)) * weights[X.indices]
        ends = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
        return ends[X.indptr[1:]] - ends[X.indptr[:-1]]
    return (_spread(_bits(np.asarray(X))) * weights).sum(axis=1)


def _bits(values: np.ndarray) -> np.ndarray:
    """The bits of numbers in single precision; those of zero are zero, whatever its sign."""
    import numpy as np

    with np.errstate(over="ignore"):
        single = values.astype(np.float32) + np.float32(0)
    return single.view(np.uint32).astype(np.uint64)


def _spread(numbers: np.ndarray) -> np.ndarray:
    """The last steps of splitmix64; zero stays zero."""
    import numpy as np

    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(FIRST)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(SECOND)
    return numbers ^ (numbers >> np.uint64(31))


def noted_rows(data: Samples, reading: ReadOptions) -> dict[str, str]:
    """What `seen` needs to know of the training samples; those on a cluster are told by their name alone."""
    found = {} if data.y is None else {"rows": fingerprint(data.X)}
    return found if reading.split is None else found | {"split": reading.split}


def seen(stored: Stored, data: Samples, source: str, asked: ReadOptions) -> Seen:
    """Which of the samples the model was trained on, as far as its file tells.

    The rows themselves tell it, under any name. A part of the training samples is known only if it is a part
    of the same data with a split.
    """
    about = stored.about
    if "samples" not in about:
        return Seen()
    n = about["samples"]
    same_name = source == about["data"] and source != "-"
    same_rows = about["rows"] == fingerprint(data.X) if "rows" in about else same_name
    if len(data) == n and same_rows:
        cure = "leave --split out" if asked.split == "train" else HOLD_OUT
        return Seen("all", f"These {n} samples are those that the model was trained on: {SAYS} {cure}.")
    if same_name and about.get("split") == "all" and len(data) < n:
        cure = "fit without --split all"
        return Seen("all", f"The model was trained on these {len(data)} samples too: {SAYS} {cure}.")
    if same_name and asked.split == "all" and len(data) > n:
        words = f"{n} of these {len(data)} samples are those that the model was trained on"
        return Seen("some", f"{words}: {SAYS} leave --split out.")
    return Seen()
