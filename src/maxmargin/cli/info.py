"""`maxmargin info`: what a model file holds."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from maxmargin.cli.console import print_table
from maxmargin.cli.data import LISTED
from maxmargin.cli.families import FAMILIES
from maxmargin.cli.models import bare, certificate, last_step, preprocessing
from maxmargin.cli.options import Command

# Parameters that are shown elsewhere, or are estimators themselves.
ELSEWHERE = ("estimator", "random_state", "steps")


@click.command("info", cls=Command, short_help="Describe a model file.")
@click.argument("model_file", type=click.Path(path_type=Path), metavar="MODEL")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, with all names, instead of a table.")
def info_command(model_file: Path, as_json: bool) -> None:
    """Describe MODEL, a file of `maxmargin fit` or of `maxmargin.save`.

    Listed are the family, the parameters that differ from their defaults, the certificate of the fit, the
    labels, the columns with their kinds, the versions that wrote the file, and its size.

    \b
    maxmargin info yeast.mm
    maxmargin info yeast.mm --json
    """
    found = described(model_file)
    if as_json:
        print(json.dumps(found, ensure_ascii=False, default=str))
    else:
        print_table(str(model_file), ["", ""], list(_rows(found)), left=(0, 1))


def described(path: Path) -> dict[str, Any]:
    """What a model file holds, in plain values."""
    from maxmargin.io.named import columns_of, is_noted, label_spaces
    from maxmargin.persistence import ModelFileError, describe, load
    from maxmargin.tables import words_for

    if not path.exists():
        raise ModelFileError(f"There is no model file {path}.")
    file, model = describe(path), load(path)
    notes, inner, before = file["metadata"], last_step(bare(model)), preprocessing(model)
    family = next((one.name for one in FAMILIES.values() if one.estimator == type(inner).__name__), None)
    columns, spaces = columns_of(model), label_spaces(model)
    labels = [str(name) for name in getattr(model, "classes_", ())]
    several = bool(spaces) and not spaces[0].single_label
    return {
        "model": str(path),
        "family": family,
        "classes": [type(one).__name__ for one in _inwards(model)],
        "parameters": {key: value for one in _inwards(model) for key, value in _changed(one).items()},
        "random_state": plain(getattr(inner, "random_state", None)),
        "solver": getattr(inner, "solver", None),
        **{key: plain(value) for key, value in certificate(inner).items()},
        "labels": labels,
        "labels per sample": "several" if several else "one" if labels else None,
        "features": getattr(model, "n_features_in_", None),
        "columns": columns,
        "preparation": words_for(before, list(columns)) if before is not None and columns else None,
        "notes": {key: notes[key] for key in ("data", "samples", "seconds")} if is_noted(notes) else notes,
        "written by": "maxmargin fit" if is_noted(notes) else "maxmargin.save",
        "maxmargin": file["maxmargin"],
        "sklearn": file["sklearn"],
        "bytes": file["bytes"],
    }


def _inwards(model: Any) -> Iterator[Any]:
    """The wrappers of a model from the outside in, and the estimator."""
    while hasattr(model, "estimator_"):
        yield model
        model = model.estimator_
    yield last_step(model)


def _changed(model: Any) -> dict[str, Any]:
    """The parameters of an estimator that differ from their defaults."""
    known = inspect.signature(type(model)).parameters
    given = model.get_params(deep=False) if hasattr(model, "get_params") else {}
    return {
        name: plain(value)
        for name, value in given.items()
        if name not in ELSEWHERE and repr(value) != repr(known[name].default)
    }


def plain(value: Any) -> Any:
    """A parameter as a value of JSON: arrays by their shape, functions and random states by their names."""
    if hasattr(value, "shape") and value.shape:
        return f"array of shape {tuple(value.shape)}"
    if hasattr(value, "item"):
        return value.item()
    if callable(value) and hasattr(value, "__name__"):
        return value.__name__
    return (
        value
        if isinstance(value, (bool, int, float, str, list, tuple, dict)) or value is None
        else str(value)
    )


def _rows(found: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "family", found["family"]
    yield "model", " of ".join(found["classes"])
    yield (
        "parameters",
        ", ".join(f"{key}={value}" for key, value in found["parameters"].items()) or "defaults",
    )
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


def listed(names: Sequence[str]) -> str:
    """The first names, and how many there are more."""
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more
