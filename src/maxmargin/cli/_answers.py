"""Predictions on their way out, one piece after another."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from maxmargin.cli._measures import label_scores
from maxmargin.cli._samples import sequence_lengths
from maxmargin.cli._stored import Stored

if TYPE_CHECKING:
    from maxmargin.datasets import Dataset


@dataclass(frozen=True)
class Answer:
    """A piece of the data, the labels predicted for it, and the scores if they are wanted."""

    data: Dataset
    predicted: Any
    scores: Any

    @property
    def several(self) -> bool:
        return getattr(self.predicted, "ndim", 1) == 2

    @property
    def labelled(self) -> Dataset:
        """The piece with the predicted labels in the place of its own."""
        return replace(self.data, Y=self.predicted)


def answer(stored: Stored, data: Dataset, scores: bool) -> Answer:
    """Predict one piece."""
    import numpy as np

    model, X = stored.model, stored.like_training(data.X)
    if np.isnan(X.data if hasattr(X, "toarray") else X).any():
        raise ValueError("Some feature values are missing; fill them in before predicting.")
    chain = stored.family.task == "chain"
    predicted = model.predict(X, **({"lengths": sequence_lengths(data)} if chain else {}))
    classes = tuple(str(name) for name in model.classes_)
    named = replace(
        data,
        X=X,
        feature_names=tuple(stored.feature_names),
        label_names=tuple(stored.label_names) if np.ndim(predicted) == 2 else classes,
    )
    return Answer(named, predicted, label_scores(model, X) if scores else None)


class Writer:
    """Writes answers of one piece after another.

    Parameters
    ----------
    out : binary file
    kind : {"csv", "jsonl", "svmlight", "arff", "parquet", "table", "letters"}
        The first two hold the answers alone, the others the features beside them; "table" is CSV.
    how : dict
        `header` and `delimiter` of a table, `zero_based` and `label_ids` of SVMlight, the path
        `xml` for the label file of ARFF.
    """

    def __init__(self, out: IO[bytes], kind: str, how: dict[str, Any]) -> None:
        self.out, self.how = out, how
        self.n_written = self.n_words = 0
        self._write_piece = getattr(self, f"_{kind}")
        self._columns: Any = None

    def write(self, answer: Answer) -> None:
        self._write_piece(answer)
        self.n_written += answer.data.X.shape[0]

    def close(self) -> None:
        """Write what comes at the end of a file."""
        if self._columns is not None:
            self._columns.close()

    def _csv(self, answer: Answer) -> None:
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        names = list(answer.data.label_names)
        columns = names if answer.several or answer.scores is not None else ["class"]
        files = answer.data.per_row.get("file")
        if answer.scores is not None:
            rows = answer.scores.tolist()
        elif answer.several:
            rows = _dense(answer.predicted).tolist()
        else:
            rows = [[label] for label in answer.predicted.tolist()]
        if files is not None:
            columns, rows = ["file", *columns], [[str(f), *row] for f, row in zip(files, rows, strict=True)]
        if not self.n_written:
            table.writerow(columns)
        table.writerows(rows)
        self.out.write(text.getvalue().encode())

    def _jsonl(self, answer: Answer) -> None:
        names = answer.data.label_names
        files = answer.data.per_row.get("file")
        rows = _dense(answer.predicted) if answer.several else answer.predicted
        for i, row in enumerate(rows):
            said: dict[str, Any] = {} if files is None else {"file": str(files[i])}
            if answer.several:
                said["labels"] = [names[k] for k in row.nonzero()[0]]
            else:
                said["class"] = row.item() if hasattr(row, "item") else row
            if answer.scores is not None:
                said["scores"] = dict(zip(names, answer.scores[i].tolist(), strict=True))
            self.out.write(json.dumps(said, ensure_ascii=False).encode() + b"\n")

    def _svmlight(self, answer: Answer) -> None:
        from maxmargin.io.write import svmlight_lines

        data = answer.labelled
        self.out.writelines(
            svmlight_lines(data, zero_based=self.how["zero_based"], labels=self.how["label_ids"])
        )

    def _table(self, answer: Answer) -> None:
        from maxmargin.io.write import csv_lines

        header = self.how["header"] and not self.n_written
        self.out.writelines(csv_lines(answer.labelled, header=header, delimiter=self.how["delimiter"]))

    def _arff(self, answer: Answer) -> None:
        from maxmargin.io.atomic import atomic_write
        from maxmargin.io.write import arff_lines, label_xml

        xml = self.how["xml"]
        if answer.several and xml is not None and not self.n_written:
            with atomic_write(xml, pack=True) as out:
                out.write(label_xml(answer.labelled).encode())
        self.out.writelines(arff_lines(answer.labelled, header=not self.n_written))

    def _parquet(self, answer: Answer) -> None:
        from maxmargin.io.write import ParquetWriter

        self._columns = self._columns or ParquetWriter(self.out)
        self._columns.write(answer.labelled)

    def _letters(self, answer: Answer) -> None:
        from maxmargin.io.write import letter_lines

        self.out.writelines(letter_lines(answer.labelled, self.n_written + 1, self.n_words + 1))
        self.n_words += int(answer.data.per_row["word"][-1]) + 1


def _dense(predicted: Any) -> Any:
    return predicted.toarray() if hasattr(predicted, "toarray") else predicted


@contextmanager
def target(output: Path | None) -> Iterator[IO[bytes]]:
    """stdout, or a file that appears when it is complete."""
    if output is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    from maxmargin.io.atomic import atomic_write

    with atomic_write(output, pack=True) as out:
        yield out
