"""`--name value` pairs for the parameters of an estimator."""

from __future__ import annotations

import difflib
import inspect
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import click

from maxmargin.cli._families import Family, build

# A parameter in a numpydoc section: "name : type", then its description indented.
_PARAMETER = re.compile(r"^(\w+(?:, \w+)*) : .*\n((?:    .*\n|\n)+)", re.MULTILINE)


def split_words(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Tell positional words from `--name value` and `--name=value`."""
    positional: list[str] = []
    given: dict[str, str] = {}
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if not word.startswith("--"):
            positional.append(word)
            continue
        name, equals, value = word[2:].partition("=")
        if not equals:
            if not waiting:
                raise click.UsageError(f"--{name} needs a value.")
            value = waiting.pop(0)
        given[name.replace("-", "_")] = value
    return positional, given


def estimator(family: Family, given: Mapping[str, str]) -> Any:
    """The estimator of a family with parameters as words."""
    known = family.build().get_params()
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean --{near[0].replace('_', '-')}?" if near else ""
            raise click.UsageError(
                f"--{name.replace('_', '-')} is no option and no parameter of {family.estimator}.{hint} "
                f"`maxmargin fit -m {family.name} --parameters` lists them."
            )
    return build(family, {name: value_of(word) for name, word in given.items()})


def described(family: Family) -> list[list[str]]:
    """Option, default and first sentence of every parameter of a family's estimator."""
    model = family.build()
    words = _PARAMETER.findall(inspect.cleandoc(type(model).__doc__ or "").partition("\nAttributes\n")[0])
    told = {
        name: " ".join(text.split()).partition(". ")[0] for names, text in words for name in names.split(", ")
    }
    return [
        [f"--{name.replace('_', '-')}", json.dumps(default, default=str), told.get(name, "")]
        for name, default in model.get_params().items()
    ]


def value_of(word: str) -> Any:
    """A number, true, false, none, a JSON list or object, or else the word itself."""
    lowered = word.lower()
    if lowered in ("none", "true", "false"):
        return {"none": None, "true": True, "false": False}[lowered]
    try:
        return json.loads(word)
    except ValueError:
        return word
