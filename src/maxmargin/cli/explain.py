"""`maxmargin explain`, `maxmargin info` and `maxmargin export`: what a model file holds."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import click

from maxmargin.cli.console import FILE, Command, echo, json_option, model_argument, print_table
from maxmargin.cli.data import ReadOptions, listed, read_options, sequence_lengths
from maxmargin.cli.families import FAMILIES
from maxmargin.cli.models import bare, certificate, last_step, open_model, preprocessing
from maxmargin.cli.predict import opened
from maxmargin.io.words import visible


@click.command("explain", cls=Command, short_help="Explain the scores of a model by features.")
@model_argument
@click.argument("source", metavar="DATA")
@click.option("--label", help="Label or class to explain. Default: the one with the highest score.")
@click.option(
    "--top", default=10, show_default=True, type=click.IntRange(1), help="Number of parts to print."
)
@click.option(
    "--rows", default=5, show_default=True, type=click.IntRange(1), help="Number of samples to explain."
)
@json_option("Print one JSON object per sample.")
@read_options
def explain_command(
    model_file: Path, source: str, label: str | None, top: int, rows: int, as_json: bool, reading: ReadOptions
) -> None:
    """Print how much each feature of DATA adds to the scores of MODEL; with a kernel, each training row.

    The parts, the rest and the bias add up to the score. The samples of a chain are sequences: every position
    is explained, including the transitions from the label before and to the label after.

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
    how = {"label": _class(inner, label), "top": top, "names": names or None}
    done = 0
    with opened(stored, source, stored.reading(reading), bar=not sys.stdout.isatty()) as (_, chunks):
        for data in islice(chunks, rows):
            lengths = sequence_lengths(data)[: rows - done] if stored.family.task == "chain" else None
            X = stored.like_training(data.X[: rows - done if lengths is None else int(lengths.sum())])
            X = X if before is None else before.transform(X)
            found = inner.explain(X, **how) if lengths is None else inner.explain(X, lengths=lengths, **how)
            samples = np.arange(len(found))
            if lengths is not None:
                samples = np.repeat(np.arange(len(lengths)), lengths)
            for k, explanation in zip(samples.tolist(), found, strict=True):
                _print_explanation(done + k, explanation, as_json)
            done += samples[-1] + 1
            if done >= rows:
                break
    if not done:
        raise ValueError(f"{source} has no samples.")


def _class(inner: Any, label: str | None) -> Any:
    """Return the class of an estimator with a given name."""
    if label is None:
        return None
    names = [str(name) for name in inner.classes_.tolist()]
    if label not in names:
        shown = ", ".join(names[:10]) + (" and others" if len(names) > 10 else "")
        raise click.UsageError(f"--label {label}: the model has no such label; it has {shown}.")
    return inner.classes_.tolist()[names.index(label)]


def _print_explanation(sample: int, found: Any, as_json: bool) -> None:
    where = {"where": found.where} if found.where else {}
    if as_json:
        entry = {"sample": sample, **where, "label": str(found.label), "score": found.score}
        entry |= {"parts": dict(found.parts), "rest": found.rest, "bias": found.bias}
        print(json.dumps(entry, ensure_ascii=False))
        return
    place = f"{found.where}, " if found.where else ""
    print(visible(f"sample {sample}, {place}{found.label}: {found.score:+.4g}"))
    print("\n".join(visible(line) for line in str(found).split("\n")[1:]))


@click.command("info", cls=Command, short_help="Describe a model file.")
@model_argument
@json_option("Print one JSON object with all names instead of a table.")
def info_command(model_file: Path, as_json: bool) -> None:
    """Describe MODEL, a file of `maxmargin fit` or of `maxmargin.save`.

    Prints the family, parameters that differ from their defaults, the certificate of the fit, labels, columns
    with their kinds, the versions that wrote the file, and its size.

    \b
    maxmargin info yeast.mm
    maxmargin info yeast.mm --json
    """
    found = _described(model_file)
    if as_json:
        print(json.dumps(found, ensure_ascii=False, default=str))
    else:
        print_table(str(model_file), ["property", "value"], list(_lines(found)), left=(0, 1))


def _described(path: Path) -> dict[str, Any]:
    """Return the contents of a model file as plain values."""
    from maxmargin.io.named import columns_of, is_noted, label_spaces
    from maxmargin.persistence import ModelFileError, describe, load
    from maxmargin.tables import words_for

    if not path.exists():
        raise ModelFileError(f"There is no model file {path}.")
    file, model = describe(path), load(path)
    notes, inner, before = file["metadata"], last_step(bare(model)), preprocessing(model)
    from_fit = is_noted(notes)
    wrappers = [model]
    while hasattr(wrappers[-1], "estimator_"):
        wrappers.append(wrappers[-1].estimator_)
    estimators = [*wrappers[:-1], inner]
    family = next((one.name for one in FAMILIES.values() if one.estimator == type(inner).__name__), None)
    columns, spaces = columns_of(model), label_spaces(model)
    labels = [str(name) for name in getattr(model, "classes_", ())]
    several = bool(spaces) and not spaces[0].single_label
    return {
        "model": str(path),
        "family": family,
        "classes": [type(one).__name__ for one in estimators],
        "parameters": {key: value for one in estimators for key, value in _changed(one).items()},
        "random_state": _plain(getattr(inner, "random_state", None)),
        "solver": getattr(inner, "solver", None),
        **{key: _plain(value) for key, value in certificate(inner).items()},
        "labels": labels,
        "labels per sample": "several" if several else "one" if labels else None,
        "features": getattr(model, "n_features_in_", None),
        "columns": columns,
        "preparation": words_for(before, list(columns)) if before is not None and columns else None,
        "notes": {key: notes[key] for key in ("data", "samples", "seconds")} if from_fit else notes,
        "written by": "maxmargin fit" if from_fit else "maxmargin.save",
        "maxmargin": file["maxmargin"],
        "sklearn": file["sklearn"],
        "bytes": file["bytes"],
    }


def _changed(model: Any) -> dict[str, Any]:
    """Return the parameters of an estimator that differ from their defaults."""
    known = inspect.signature(type(model)).parameters
    given = model.get_params(deep=False) if hasattr(model, "get_params") else {}
    return {
        name: _plain(value)
        for name, value in given.items()
        if name not in ("estimator", "random_state", "steps") and repr(value) != repr(known[name].default)
    }


def _plain(value: Any) -> Any:
    """Return a JSON value: arrays by their shape, functions by their name, other objects as text."""
    if hasattr(value, "shape") and value.shape:
        return f"array of shape {tuple(value.shape)}"
    if hasattr(value, "item"):
        return value.item()
    if callable(value) and hasattr(value, "__name__"):
        return value.__name__
    is_plain = value is None or isinstance(value, (bool, int, float, str, list, tuple, dict))
    return value if is_plain else str(value)


def _lines(found: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the rows of the table."""
    parameters = ", ".join(f"{key}={value}" for key, value in found["parameters"].items())
    yield "family", found["family"]
    yield "model", " of ".join(found["classes"])
    yield "parameters", parameters or "defaults"
    for key in ("random_state", "solver", "ran", "epochs", "objective", "gap", "basis vectors"):
        if key in found and (key != "solver" or found[key] is not None):
            yield key.replace("_", " "), "none" if found[key] is None else found[key]
    if found["labels"]:
        count = f"{len(found['labels'])}, {found['labels per sample']} per sample"
        yield "labels", f"{count}: {listed(found['labels'])}"
    if found["columns"]:
        kinds = dict.fromkeys(found["columns"].values())
        names = {kind: [name for name, own in found["columns"].items() if own == kind] for kind in kinds}
        yield "columns", "; ".join(f"{kind}: {listed(own)}" for kind, own in names.items())
    elif found["features"] is not None:
        yield "columns", f"{found['features']}, without names"
    if found["preparation"]:
        yield "preparation", found["preparation"]
    if found["written by"] == "maxmargin fit":
        yield "trained on", f"{found['notes']['samples']} samples of {found['notes']['data']}"
    elif found["notes"]:
        yield "metadata", json.dumps(found["notes"], ensure_ascii=False, default=str)
    versions = f"maxmargin {found['maxmargin']} and scikit-learn {found['sklearn']}"
    yield "written by", f"{found['written by']}, {versions}"
    yield "bytes", found["bytes"]


@click.command("export", cls=Command, short_help="Write a model as ONNX.")
@model_argument
@click.argument("output", type=FILE, metavar="FILE.onnx")
@click.option(
    "--outputs", help="Outputs of the ONNX model: some of labels, scores, probabilities, a,b. Default: all."
)
@click.option("--float32", is_flag=True, help="Use single precision for inputs and arithmetic.")
def export_command(model_file: Path, output: Path, outputs: str | None, float32: bool) -> None:
    """Write MODEL, a file of `maxmargin fit`, as an ONNX model for other runtimes.

    Needs `pip install onnx`. The ONNX model returns the same predictions as `maxmargin predict`.

    \b
    maxmargin export flags.mm flags.onnx
    maxmargin export yeast.mm yeast.onnx --outputs labels --float32
    """
    import numpy as np

    import maxmargin
    from maxmargin.io.files import atomic_write

    if output.is_dir() or not output.resolve().parent.is_dir():
        raise click.UsageError(f"{output} cannot be written; name a file in an existing directory.")
    if output.suffix.lower() != ".onnx":
        raise click.UsageError(f"{output}: the name of an ONNX file must end in .onnx.")
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
    returned = ", ".join(result.name for result in proto.graph.output)
    taken = ", ".join(result.name for result in proto.graph.input)
    echo(f"{output}: takes {taken}, returns {returned}; {output.stat().st_size} bytes.")
