"""What the shell offers after Tab: files and data sets, model families, parameters and their values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from maxmargin.cli.options import Command


def complete_data(context: click.Context, argument: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Data sets that are at hand and files; where no data set fits, the shell completes files itself."""
    from maxmargin.io.registry import list_datasets, where

    here = [name for name in list_datasets() if where(name) != "can be fetched"]
    fitting = [name for name in here if name.startswith(incomplete)]
    if not fitting:
        return [CompletionItem(incomplete, type="file")]
    files = sorted(str(path) + ("/" if path.is_dir() else "") for path in Path().glob(f"{incomplete}*"))
    return [CompletionItem(word) for word in (*fitting, *files)]


def complete_known(
    context: click.Context, argument: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """All data sets that can be had."""
    from maxmargin.io.registry import list_datasets

    return [CompletionItem(name) for name in list_datasets() if name.startswith(incomplete)]


def complete_words(
    context: click.Context, argument: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """DATA, or the value of a parameter that was named before."""
    words = context.params.get("words") or ()
    if words and words[-1].startswith("--") and "=" not in words[-1]:
        return [CompletionItem(v) for v in _values(context, words[-1][2:]) if v.startswith(incomplete)]
    return complete_data(context, argument, incomplete)


class ParameterCommand(Command):
    """A command whose options are also the parameters of the estimators that it fits."""

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        found = super().shell_complete(context, incomplete)
        if incomplete.startswith("--"):
            known = {item.value for item in found}
            names = (f"--{name.replace('_', '-')}" for name in _parameters(context))
            found += [
                CompletionItem(name) for name in names if name.startswith(incomplete) and name not in known
            ]
        return found


def _parameters(context: click.Context) -> dict[str, Any]:
    """Parameters of the chosen families (of all without a choice) with their constraints."""
    from maxmargin.cli.families import FAMILIES

    told = context.params.get("family") or context.params.get("families") or ()
    chosen = [told] if isinstance(told, str) else list(told)
    found: dict[str, Any] = {}
    for name in chosen or ("multilabel", "multiclass"):
        model = FAMILIES[name].build()
        found |= {key: type(model)._parameter_constraints.get(key, ()) for key in model.get_params()}
    return found


def _values(context: click.Context, name: str) -> list[str]:
    """The words that a parameter can be, as its constraints have them."""
    constraints = _parameters(context).get(name.replace("-", "_"), ())
    words = {word for one in constraints for word in getattr(one, "options", ())}
    words |= {"true", "false"} if "boolean" in constraints else set()
    words |= {"none"} if None in constraints else set()
    return sorted(str(word) for word in words)
