"""`maxmargin explain` and `maxmargin export`."""

from __future__ import annotations

import json
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import click

from maxmargin.cli.console import say
from maxmargin.cli.data import ReadOptions, read_options, sequence_lengths
from maxmargin.cli.models import bare, last_step, open_model, preprocessing
from maxmargin.cli.options import Command
from maxmargin.cli.predict import opened
from maxmargin.io.words import visible


@click.command("explain", cls=Command, short_help="Say what carried the scores of a model.")
@click.argument("model_file", type=click.Path(path_type=Path), metavar="MODEL")
@click.argument("source", metavar="DATA")
@click.option("--label", help="Label or class to explain; default: the one with the highest score.")
@click.option("--top", default=10, show_default=True, type=click.IntRange(1), help="Parts to name.")
@click.option("--rows", default=5, show_default=True, type=click.IntRange(1), help="Samples to explain.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per sample.")
@read_options
def explain_command(
    model_file: Path, source: str, label: str | None, top: int, rows: int, as_json: bool, reading: ReadOptions
) -> None:
    """Say which features of DATA carried the scores of MODEL; with a kernel, which training rows.

    The parts, what is left over and the bias add up to the score. Of a chain the samples are sequences, and
    every position is explained, with the steps from the label before and to the label after.

    \b
    maxmargin explain flags.mm flags --rows 3
    maxmargin explain yeast.mm yeast --label Class1 --top 5 --json
    """
    import numpy as np

    stored = open_model(model_file)
    inner = last_step(bare(stored.model))
    before = preprocessing(stored.model)
    names = list(stored.feature_names)
    if names and before is not None:
        from maxmargin.tables import names_behind

        names = names_behind(before, names)
    if not hasattr(inner, "coef_") or hasattr(inner, "basis_vectors_"):
        names = []
    done = 0
    with opened(stored, source, stored.reading(reading), bar=not sys.stdout.isatty()) as (_, pieces):
        for data in islice(pieces, rows):
            lengths = sequence_lengths(data)[: rows - done] if stored.family.task == "chain" else None
            X = stored.like_training(data.X[: rows - done if lengths is None else int(lengths.sum())])
            X = X if before is None else before.transform(X)
            how = {"label": _code(inner, label), "top": top, "names": names or None}
            found = inner.explain(X, **how) if lengths is None else inner.explain(X, lengths=lengths, **how)
            samples = (
                np.arange(len(found)) if lengths is None else np.repeat(np.arange(len(lengths)), lengths)
            )
            for place, told in zip(samples.tolist(), found, strict=True):
                _say(done + place, told, as_json)
            done += samples[-1] + 1
            if done >= rows:
                break
    if not done:
        raise ValueError(f"{source} has no samples.")


def _code(inner: Any, label: str | None) -> Any:
    if label is None:
        return None
    names = [str(name) for name in inner.classes_.tolist()]
    if label not in names:
        raise click.UsageError(
            f"--label {label}: the model has no such label; it has {', '.join(names[:10])}"
            f"{' and others' if len(names) > 10 else ''}."
        )
    return inner.classes_.tolist()[names.index(label)]


def _say(place: int, told: Any, as_json: bool) -> None:
    name = str(told.label)
    if as_json:
        parts = dict(told.parts)
        print(
            json.dumps(
                {
                    "sample": place,
                    **({"where": told.where} if told.where else {}),
                    "label": name,
                    "score": told.score,
                    "parts": parts,
                    "rest": told.rest,
                    "bias": told.bias,
                },
                ensure_ascii=False,
            )
        )
        return
    lines = str(told).split("\n")[1:]
    where = f"{told.where}, " if told.where else ""
    print(visible(f"sample {place}, {where}{name}: {told.score:+.4g}"))
    print("\n".join(visible(line) for line in lines))


@click.command("export", cls=Command, short_help="Write a model as ONNX.")
@click.argument("model_file", type=click.Path(path_type=Path), metavar="MODEL")
@click.argument("output", type=click.Path(path_type=Path), metavar="FILE.onnx")
@click.option(
    "--outputs",
    help="What the ONNX model gives, as names among labels, scores, probabilities: a,b; default: all it has.",
)
@click.option("--float32", is_flag=True, help="Input and arithmetic in single precision.")
def export_command(model_file: Path, output: Path, outputs: str | None, float32: bool) -> None:
    """Write MODEL, which `maxmargin fit` made, as an ONNX model for other runtimes.

    Needs `pip install onnx`. Answers are those of `maxmargin predict`.

    \b
    maxmargin export flags.mm flags.onnx
    maxmargin export yeast.mm yeast.onnx --outputs labels --float32
    """
    import numpy as np

    import maxmargin
    from maxmargin.io.files import atomic_write

    if output.is_dir() or not output.resolve().parent.is_dir():
        raise click.UsageError(f"{output} cannot be written: name a file in a directory that exists.")
    if output.suffix.lower() != ".onnx":
        raise click.UsageError(f"{output}: what is written is ONNX; the name must end in .onnx.")
    stored = open_model(model_file)
    wanted = None if outputs is None else [word.strip() for word in outputs.split(",")]
    dtype = np.float32 if float32 else np.float64
    proto = maxmargin.to_onnx(stored.model, wanted, dtype, columns=stored.feature_names)
    del proto.metadata_props[:]
    for key, names in (("labels", stored.label_names), ("features", stored.feature_names)):
        if names:
            entry = proto.metadata_props.add()
            entry.key, entry.value = key, json.dumps(names, ensure_ascii=False)
    with atomic_write(output) as out:
        out.write(proto.SerializeToString())
    given = ", ".join(result.name for result in proto.graph.output)
    taken = ", ".join(result.name for result in proto.graph.input)
    say(f"{output}: takes {taken}, gives {given}; {output.stat().st_size} bytes.")
