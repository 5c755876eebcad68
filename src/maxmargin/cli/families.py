"""Model families of the command line, their parameters as options, and shell completion.

scikit-learn and the estimators are imported by `build` and `baseline` only.
"""

from __future__ import annotations

import difflib
import inspect
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from maxmargin.cli.console import Command

if TYPE_CHECKING:
    from maxmargin.cli.data import ReadOptions
    from maxmargin.datasets import Dataset


@dataclass(frozen=True)
class Family:
    """One model family.

    Attributes
    ----------
    name : str
        Value of `--model`.
    estimator : str
        Public name of the estimator class.
    task : {"multilabel", "multiclass", "chain", "ranking"}
        Kind of labels, which decides the measures.
    summary : str
        One line for `--help`.
    baseline_name : str
        Name of the scikit-learn baseline in tables.
    """

    name: str
    estimator: str
    task: str
    summary: str
    baseline_name: str

    def build(self, **params: Any) -> Any:
        """Return the unfitted estimator."""
        return build(self.estimator, **params)

    def baseline(self) -> Any:
        """Return the unfitted scikit-learn estimator that this family is compared with."""
        from sklearn.linear_model import SGDClassifier
        from sklearn.multiclass import OneVsRestClassifier
        from sklearn.svm import SVC, LinearSVC

        if self.task == "ranking":
            return SGDClassifier(loss="hinge", max_iter=1, tol=None, shuffle=False, random_state=0)
        model = SVC() if "sparse" in self.name else LinearSVC()
        return OneVsRestClassifier(model) if self.task == "multilabel" else model


def build(estimator: str, **params: Any) -> Any:
    """Return an estimator by its public name; `prior="labels"` means `maxmargin.priors.from_labels`."""
    import maxmargin

    if params.get("prior") == "labels":
        params["prior"] = maxmargin.priors.from_labels
    return getattr(maxmargin, estimator)(**params)


FAMILIES: dict[str, Family] = {
    name: Family(name, *entry)
    for name, *entry in (
        (
            "multilabel", "MultiLabelSVC", "multilabel",
            "several labels per sample, with a prior on how labels go together", "OvR LinearSVC",
        ),
        ("multiclass", "MultiClassSVC", "multiclass", "one class per sample", "LinearSVC"),
        (
            "ranking", "LabelRanker", "ranking",
            "streams: learns from one sample at a time, new labels may appear", "SGD, one pass",
        ),
        (
            "sparse-multiclass", "SparseMultiClassSVC", "multiclass",
            "one class per sample, with a small number of basis vectors", "SVC",
        ),
        (
            "sparse-multilabel", "SparseMultiLabelSVC", "multilabel",
            "several labels per sample, with a small number of basis vectors", "OvR SVC",
        ),
        (
            "submodular", "SubmodularSVC", "multilabel",
            "several labels per sample, trained for the F1 of each sample, with attractive label pairs",
            "OvR LinearSVC",
        ),
        ("chain", "ChainSVC", "chain", "sequences whose positions are labelled jointly", "LinearSVC"),
    )
}  # fmt: skip
# Parameters that only estimators on a cluster have.
ON_CLUSTER = ("partition", "working_rows")
# Parameters that may be given several values to choose from.
SEVERAL = ("C",)


def family_of(data: Dataset) -> Family:
    """Return the default family of a data set."""
    if "word" in data.per_row:
        return FAMILIES["chain"]
    return FAMILIES["multilabel" if data.multilabel else "multiclass"]


def possible_families(reading: ReadOptions) -> list[Family]:
    """Return the default families that the reading options allow, before the data is read."""
    if reading.target is not None:
        return [FAMILIES["multiclass"]]
    names = ["multilabel"] if reading.names_labels else ["multilabel", "multiclass", "chain"]
    return [FAMILIES[name] for name in names]


# A parameter in a numpydoc section: "name : type", then its indented description.
_PARAMETER = re.compile(r"^(\w+(?:, \w+)*) : .*\n((?:    .*\n|\n)+)", re.MULTILINE)


def split_words(
    words: Sequence[str], families: Sequence[Family], more: Sequence[str] = ()
) -> tuple[list[str], dict[str, str]]:
    """Separate positional words from `--name value` and `--name=value`.

    A name must be a parameter of one of the families, or one of `more`. Several values of one parameter are
    joined by commas.
    """
    known = {name for family in families for name in family.build().get_params()} | set(more)
    positional: list[str] = []
    given: dict[str, str] = {}
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if not word.startswith("-") or word == "-":
            positional.append(word)
            continue
        option, equals, value = word.partition("=")
        name = option[2:].replace("-", "_")
        if name not in known:
            raise _unknown(option, known, families)
        if name in given and name not in SEVERAL:
            raise click.UsageError(f"{option} is given twice, but it takes one value.")
        if not equals:
            if not waiting:
                raise click.UsageError(f"{option} needs a value.")
            value = waiting.pop(0)
        given[name] = f"{given[name]},{value}" if name in given else value
    return positional, given


def _unknown(option: str, parameters: Iterable[str], families: Sequence[Family]) -> click.UsageError:
    """Return the error for an unknown option, with the option that was probably meant."""
    context = click.get_current_context()
    own = [name for one in context.command.get_params(context) for name in one.opts if name[:1] == "-"]
    options = {name.lower(): name for name in (*own, *(_option(name) for name in sorted(parameters)))}
    near = difflib.get_close_matches(option.lower(), options, n=1)
    name = option[2:].replace("-", "_")
    others = [f"-m {family.name}" for family in FAMILIES.values() if name in family.build().get_params()]
    return click.UsageError(
        f"{option} is no option and no parameter of {' or '.join(family.estimator for family in families)}."
        + (f" It is a parameter of {', '.join(others)}." if others else "")
        + (f" Did you mean {options[near[0]]}?" if near and not others else "")
        + f" `maxmargin fit -m {families[0].name} --parameters` lists the parameters."
    )


def _option(parameter: str) -> str:
    return f"--{parameter.replace('_', '-')}"


def estimator(family: Family, given: Mapping[str, str]) -> Any:
    """Return the estimator of a family with parameters from the command line."""
    known = family.build().get_params()
    for name in given:
        if name not in known:
            raise _unknown(_option(name), known, [family])
    model = family.build(**{name: value_of(word) for name, word in given.items()})
    try:
        model._validate_params()
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    return model


def described(family: Family) -> list[list[str]]:
    """Return option, default and first sentence of the docstring of every parameter of a family."""
    model = estimator(family, {})
    found = _PARAMETER.findall(inspect.cleandoc(type(model).__doc__ or "").partition("\nAttributes\n")[0])
    sentences = {
        name: " ".join(text.split()).partition(". ")[0].removesuffix(".")
        for names, text in found
        for name in names.split(", ")
    }
    return [
        [_option(name), json.dumps(default, default=str), sentences.get(name, "")]
        for name, default in model.get_params().items()
    ]


def value_of(word: str) -> Any:
    """Return a number, true, false, none, a JSON list or object, or else the word itself."""
    lowered = word.lower()
    if lowered in ("none", "true", "false"):
        return {"none": None, "true": True, "false": False}[lowered]
    try:
        return json.loads(word)
    except ValueError:
        return word


def complete_data(context: click.Context, argument: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete local data sets and files; without a matching data set the shell completes files itself."""
    from maxmargin.io.registry import list_datasets, where

    local = [name for name in list_datasets() if where(name) != "can be fetched"]
    fitting = [name for name in local if name.startswith(incomplete)]
    if not fitting:
        return [CompletionItem(incomplete, type="file")]
    files = sorted(str(path) + ("/" if path.is_dir() else "") for path in Path().glob(f"{incomplete}*"))
    return [CompletionItem(word) for word in (*fitting, *files)]


def complete_words(
    context: click.Context, argument: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete DATA, or the value of the parameter before it."""
    words = context.params.get("words") or ()
    if words and words[-1].startswith("--") and "=" not in words[-1]:
        return [CompletionItem(v) for v in _values(context, words[-1][2:]) if v.startswith(incomplete)]
    return complete_data(context, argument, incomplete)


class ParameterCommand(Command):
    """A command that also takes the parameters of estimators as options."""

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        found = super().shell_complete(context, incomplete)
        if incomplete.startswith("--"):
            names = sorted({_option(name) for name in _constraints(context)} - {item.value for item in found})
            found += [CompletionItem(name) for name in names if name.startswith(incomplete)]
        return found


def _constraints(context: click.Context) -> dict[str, Any]:
    """Return the parameters of the chosen families, or of the usual ones, with their constraints."""
    chosen = context.params.get("family") or context.params.get("families") or ("multilabel", "multiclass")
    found: dict[str, Any] = {}
    for name in [chosen] if isinstance(chosen, str) else chosen:
        model = FAMILIES[name].build()
        found |= {key: type(model)._parameter_constraints.get(key, ()) for key in model.get_params()}
    return found


def _values(context: click.Context, name: str) -> list[str]:
    """Return the words that a parameter accepts according to its constraints."""
    constraints = _constraints(context).get(name.replace("-", "_"), ())
    words = {word for one in constraints for word in getattr(one, "options", ())}
    words |= {"true", "false"} if "boolean" in constraints else set()
    words |= {"none"} if None in constraints else set()
    return sorted(str(word) for word in words)
