"""What a fitted object is made of: the words in which a class declares it, in a table `STATE`.

`State({"coef_": floats("n_labels", "n_features"), "n_features_in_": Whole(size="n_features"), ...})`
says of every attribute what it may hold. Sizes have names; a name stands for the same number in an
object and in all its parts, so that arrays that belong together fit together. What two attributes
must agree on beyond that is a `rule`. A model file holds what is declared and nothing else:
`io.checked` holds models to their tables before they are written and after they were read.
Parameters are not declared here, an estimator has constraints for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

# No weight of a sound model comes near; products of such numbers are finite.
LARGEST = 1e100
# Whole numbers up to here are exact as floats and safe as machine integers.
MOST = 2**53
# Letters of the names of the solvers that ran.
LONGEST_NAME = 200
FLOATS = ("f8", "f4")
DOUBLE = ("f8",)


class Sizes(dict[str, int]):
    """The numbers that names of sizes stand for."""

    def fix(self, name: str, number: int) -> None:
        """Let a name stand for a number, which must be the one it stands for already, if any."""
        if self.setdefault(name, number) != number:
            raise ValueError(f"{name} is {self[name]} elsewhere and {number} here")


@dataclass(frozen=True)
class Field:
    """One attribute; those of one `group` are there together or not at all."""

    group: str = field(default="", kw_only=True)
    none: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class Array(Field):
    """Numbers from `low` to `high`; a size as `high` is the first number beyond them.

    Where the attribute `when` is false, the array is empty. NaN and infinity are numbers of an
    array that is not `finite` only. A `packed` array is one that compiled loops take as it is: rows
    after rows. None in the shape is any size.
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
    """An array of whole numbers from 0 on, below a size."""
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
    """Rows of numbers, dense or CSR, whose shape a rule looks at."""


@dataclass(frozen=True)
class Ruled(Field):
    """A value that the rule alone looks at."""


@dataclass(frozen=True)
class LabelNames(Field):
    """A vector of names: numbers, texts, or objects that are such (or tuples of them)."""

    size: str
    least: int = 1


@dataclass(frozen=True)
class Names(Field):
    """A vector of texts as scikit-learn keeps the names of features."""

    size: str


@dataclass(frozen=True)
class Whole(Field):
    """A whole number; `size` is a name that stands for it."""

    low: int = 0
    high: int = MOST
    size: str = ""


@dataclass(frozen=True)
class Number(Field):
    """A number from `low` to `high`; NaN and infinity only if it need not be `finite`."""

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
    """A value of which a function says what is wrong with it, or None."""

    complaint: Callable[[Any], str | None]


@dataclass(frozen=True)
class Numbered(Field):
    """A dict of names (or texts) to 0, 1, 2, ..., each number once."""

    size: str = ""
    texts: bool = False


@dataclass(frozen=True)
class Several(Field):
    """A list of values of one sort, as many as a size says."""

    item: Field
    size: str = ""


@dataclass(frozen=True)
class History(Field):
    """A list of records: dicts of words to numbers, and the name of a solver."""


@dataclass(frozen=True)
class Part(Field):
    """An object of one of the named classes, which has a table of its own.

    One that stands `apart` has sizes of its own too.
    """

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
    parameter with their replacements.
    """

    fields: Mapping[str, Field]
    rule: Rule | None = None
    parameters: Mapping[str, Field] = field(default_factory=dict)
    removed: Mapping[str, Mapping[Any, str] | None] = field(default_factory=dict)


def _no_name(value: Any) -> str | None:
    return None if type(value) is str and len(value) <= LONGEST_NAME else "the names of solvers were expected"


# What a run of `core.loop` leaves behind, and scikit-learn's reading of X.
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
# Of an estimator that may know the columns of a table by name.
ROWS: dict[str, Field] = {**INPUT, "_table": part("NamedColumns", group="table")}
