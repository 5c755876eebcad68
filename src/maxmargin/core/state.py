"""Declarations of what a fitted object holds, in a table `STATE` of its class.

`State({"coef_": floats("n_labels", "n_features"), "n_features_in_": Whole(size="n_features"), ...})` declares
every attribute. Sizes have names; a name stands for the same number in an object and in all its parts, so
that arrays that belong together fit together. A `rule` checks what attributes must agree on beyond sizes. A
model file holds only what is declared: `io.checked` checks models before they are written and after they are
read. Parameters are not declared here, because an estimator has constraints for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

# Far above any weight of a sound model; products of such numbers are finite.
LARGEST = 1e100
# Integers up to this are exact as floats.
MOST = 2**53
# Most letters of the names of solvers.
LONGEST_NAME = 200
FLOATS = ("f8", "f4")
DOUBLE = ("f8",)


class Sizes(dict[str, int]):
    """The numbers of named sizes."""

    def fix(self, name: str, number: int) -> None:
        """Set a size to a number, which must equal an earlier one."""
        if self.setdefault(name, number) != number:
            raise ValueError(f"{name} is {self[name]} elsewhere and {number} here")


@dataclass(frozen=True)
class Field:
    """One attribute; those of one `group` are all present or all absent."""

    group: str = field(default="", kw_only=True)
    none: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class Array(Field):
    """Numbers from `low` to `high`; a size as `high` is an exclusive bound.

    If the attribute `when` is false, the array is empty. NaN and infinity are allowed only if it is not
    `finite`. A `packed` array is C-contiguous, as compiled loops take it. None in the shape is any size.
    """

    shape: tuple[str | int | None, ...]
    dtypes: tuple[str, ...]
    low: float = -LARGEST
    high: float | str = LARGEST
    when: str = ""
    finite: bool = True
    packed: bool = False


def floats(*shape: str | int | None, dtypes: tuple[str, ...] = FLOATS, **more: Any) -> Array:
    """An array of floats."""
    return Array(shape, dtypes, **more)


def indices(*shape: str | int, below: str | float = MOST, **more: Any) -> Array:
    """An array of integers from 0 to below a size."""
    return Array(shape, ("i8", "i4"), 0, below, **more)


def flags(*shape: str | int, **more: Any) -> Array:
    """An array of booleans."""
    return Array(shape, ("b1",), 0, 1, **more)


@dataclass(frozen=True)
class Weights(Field):
    """A matrix of finite floats of a shape in named sizes, dense or CSC."""

    shape: tuple[str, str]


@dataclass(frozen=True)
class Samples(Field):
    """Rows of numbers, dense or CSR, whose shape the rule checks."""


@dataclass(frozen=True)
class Ruled(Field):
    """A value that only the rule checks."""


@dataclass(frozen=True)
class LabelNames(Field):
    """A vector of names: numbers, texts, or objects of these (or tuples of them)."""

    size: str
    least: int = 1


@dataclass(frozen=True)
class Names(Field):
    """A vector of texts, as scikit-learn stores the names of features."""

    size: str


@dataclass(frozen=True)
class Whole(Field):
    """An integer; `size` is the name of the size that it fixes."""

    low: int = 0
    high: int = MOST
    size: str = ""


@dataclass(frozen=True)
class Number(Field):
    """A number from `low` to `high`; NaN and infinity only if it is not `finite`."""

    low: float = -LARGEST
    high: float = LARGEST
    finite: bool = True


MEASURED = Number(finite=False)


@dataclass(frozen=True)
class Flag(Field):
    """True or False."""


@dataclass(frozen=True)
class Chosen(Field):
    """One of a few values."""

    values: tuple[Any, ...]


def chosen(*values: Any, **more: Any) -> Chosen:
    """One of these values."""
    return Chosen(values, **more)


@dataclass(frozen=True)
class Checked(Field):
    """A value checked by a function that returns a complaint or None."""

    complaint: Callable[[Any], str | None]


@dataclass(frozen=True)
class Numbered(Field):
    """A dict of names (or texts) to 0, 1, 2, ..., each number once."""

    size: str = ""
    texts: bool = False


@dataclass(frozen=True)
class Several(Field):
    """A list of values of one kind, as many as a size."""

    item: Field
    size: str = ""


@dataclass(frozen=True)
class History(Field):
    """A list of records: dicts of numbers by name, and the name of a solver."""


@dataclass(frozen=True)
class Part(Field):
    """An object of one of the named classes, which has a table of its own, and perhaps its `own_sizes`."""

    classes: tuple[str, ...]
    own_sizes: bool = False


def part(*classes: str, **more: Any) -> Part:
    """An object of one of these classes."""
    return Part(classes, **more)


Rule = Callable[[Mapping[str, Any], Sizes], None]


@dataclass(frozen=True)
class State:
    """The attributes of a class, and what they must agree on (a rule raises ValueError).

    `removed` lists parameters that only files of earlier versions hold (None), and removed values of a
    parameter with their replacements. `renamed` lists deprecated parameters, which are None unless set, with
    their new names, and deprecated values of a parameter with the new ones.
    """

    fields: Mapping[str, Field]
    rule: Rule | None = None
    parameters: Mapping[str, Field] = field(default_factory=dict)
    removed: Mapping[str, Mapping[Any, str] | None] = field(default_factory=dict)
    renamed: Mapping[str, Mapping[Any, str] | str] = field(default_factory=dict)


def _no_name(value: Any) -> str | None:
    return None if type(value) is str and len(value) <= LONGEST_NAME else "the names of solvers were expected"


# Attributes of a run of `core.loop`, and scikit-learn's attributes of X.
OUTCOME: dict[str, Field] = {
    "primal_objective_": Number(finite=False, group="outcome"),
    "dual_objective_": Number(finite=False, group="outcome"),
    "duality_gap_": Number(finite=False, group="outcome"),
    "n_iter_": Whole(group="outcome"),
    "history_": History(group="outcome"),
    "solver_": Checked(_no_name, group="solver"),
}
INPUT: dict[str, Field] = {
    "n_features_in_": Whole(size="n_features"),
    "feature_names_in_": Names("n_features", group="names"),
}
# Attributes of an estimator that may store the columns of a table by name.
ROWS: dict[str, Field] = {**INPUT, "_table": part("NamedColumns", group="table")}
