"""The model families of the command line, one entry each, and their parameters as options.

A family says which estimator it is, what a sample's labels look like (its task), and which
scikit-learn estimator stands beside it. Nothing heavy is imported before
`build` or `baseline` is called.
"""

from __future__ import annotations

import difflib
import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from maxmargin.cli.data import ReadOptions
    from maxmargin.datasets import Dataset


@dataclass(frozen=True)
class Family:
    """One model family.

    Attributes
    ----------
    name : str
        What `--model` calls it.
    estimator : str
        Its class, a public name of the package.
    task : {"multilabel", "multiclass", "chain", "ranking"}
        Kind of labels, which decides the measures.
    summary : str
        One line for `--help`.
    baseline_name, baseline : str, callable
        The scikit-learn estimator to stand beside it.
    """

    name: str
    estimator: str
    task: str
    summary: str
    baseline_name: str
    baseline: Callable[[], Any]

    def build(self, **params: Any) -> Any:
        """The estimator, not fitted."""
        return build(self.estimator, **params)


def build(estimator: str, **params: Any) -> Any:
    """An estimator by its public name; `prior="labels"` stands for `maxmargin.priors.from_labels`."""
    import maxmargin

    if params.get("prior") == "labels":
        params["prior"] = maxmargin.priors.from_labels
    return getattr(maxmargin, estimator)(**params)


def _one_vs_rest() -> Any:
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.svm import LinearSVC

    return OneVsRestClassifier(LinearSVC())


def _linear_svc() -> Any:
    from sklearn.svm import LinearSVC

    return LinearSVC()


def _svc() -> Any:
    from sklearn.svm import SVC

    return SVC()


def _one_vs_rest_svc() -> Any:
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.svm import SVC

    return OneVsRestClassifier(SVC())


def _online_pass() -> Any:
    from sklearn.linear_model import SGDClassifier

    return SGDClassifier(loss="hinge", max_iter=1, tol=None, shuffle=False, random_state=0)


_ENTRIES = (
    Family(
        "multilabel",
        "MultiLabelSVC",
        "multilabel",
        "several labels per sample, with a prior on how labels go together",
        "OvR LinearSVC",
        _one_vs_rest,
    ),
    Family(
        "multiclass",
        "MultiClassSVC",
        "multiclass",
        "one class per sample",
        "LinearSVC",
        _linear_svc,
    ),
    Family(
        "ranking",
        "LabelRanker",
        "ranking",
        "streams: learns from one sample at a time, new labels may appear",
        "SGD, one pass",
        _online_pass,
    ),
    Family(
        "sparse-multiclass",
        "SparseMultiClassSVC",
        "multiclass",
        "one class per sample, with a small number of basis vectors",
        "SVC",
        _svc,
    ),
    Family(
        "sparse-multilabel",
        "SparseMultiLabelSVC",
        "multilabel",
        "several labels per sample, with a small number of basis vectors",
        "OvR SVC",
        _one_vs_rest_svc,
    ),
    Family(
        "submodular",
        "SubmodularSVC",
        "multilabel",
        "several labels per sample, trained for the F1 of each sample, with attractive label pairs",
        "OvR LinearSVC",
        _one_vs_rest,
    ),
    Family(
        "chain",
        "ChainSVC",
        "chain",
        "sequences, all positions labelled jointly",
        "LinearSVC",
        _linear_svc,
    ),
)
FAMILIES: dict[str, Family] = {family.name: family for family in _ENTRIES}


# Parameters that estimators have on a cluster only, and those that may have several values to choose from.
ON_CLUSTER = ("partition", "working_rows")
SEVERAL = ("C",)


def family_of(data: Dataset) -> Family:
    """The model family that data without one is fitted with."""
    if "word" in data.per_row:
        return FAMILIES["chain"]
    return FAMILIES["multilabel" if data.multilabel else "multiclass"]


def possible_families(reading: ReadOptions) -> list[Family]:
    """The families that data may be fitted with where none is named, as far as its options say."""
    if reading.target is not None:
        return [FAMILIES["multiclass"]]
    return [
        FAMILIES[name] for name in ("multilabel", "multiclass", "chain")[: 1 if reading.says_labels else 3]
    ]


# A parameter in a numpydoc section: "name : type", then its description indented.
_PARAMETER = re.compile(r"^(\w+(?:, \w+)*) : .*\n((?:    .*\n|\n)+)", re.MULTILINE)


def split_words(
    words: Sequence[str], families: Sequence[Family], more: Sequence[str] = ()
) -> tuple[list[str], dict[str, str]]:
    """Tell positional words from `--name value` and `--name=value`.

    A name must be a parameter of one of the families, or one of `more`. Several values of one parameter
    are joined by commas.
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
    context = click.get_current_context()
    own = [name for one in context.command.get_params(context) for name in one.opts if name[:1] == "-"]
    options = {name.lower(): name for name in (*own, *(_option(name) for name in sorted(parameters)))}
    near = difflib.get_close_matches(option.lower(), options, n=1)
    name = option[2:].replace("-", "_")
    others = [f"-m {family.name}" for family in FAMILIES.values() if name in family.build().get_params()]
    return click.UsageError(
        f"{option} is no option and no parameter of {' or '.join(family.estimator for family in families)}."
        + (f" It is one of {', '.join(others)}." if others else "")
        + (f" Did you mean {options[near[0]]}?" if near and not others else "")
        + f" `maxmargin fit -m {families[0].name} --parameters` lists the parameters."
    )


def _option(parameter: str) -> str:
    return f"--{parameter.replace('_', '-')}"


def estimator(family: Family, given: Mapping[str, str]) -> Any:
    """The estimator of a family with parameters as words, which it takes."""
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
    """Option, default and first sentence of every parameter of a family's estimator."""
    model = estimator(family, {})
    words = _PARAMETER.findall(inspect.cleandoc(type(model).__doc__ or "").partition("\nAttributes\n")[0])
    told = {
        name: " ".join(text.split()).partition(". ")[0] for names, text in words for name in names.split(", ")
    }
    return [
        [_option(name), json.dumps(default, default=str), told.get(name, "")]
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
