"""Directives that show tables of the code, and roles that show numbers of the experiments.

``.. equations:: multilabel`` lists where each equation of the paper is found;
``.. solvers:: MultiLabelSVC`` lists what its parameter `solver` may be;
``.. choice:: structured.multiclass_choice`` lists by which rows of a module "auto" chooses.
:count:`gap_cases` is a number that `counts` counts, and
:cell:`submodular_f1_means; example_f1:.3f; data=yeast; features=0.01; method=RML` a field of a result file.
"""

from __future__ import annotations

import importlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from counts import Counts, cell
from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

from maxmargin._names import ESTIMATORS


def locate(model: str, target: str) -> tuple[str, int, str]:
    """File, line and first sentence of what an equation table points at."""
    module, *names = target.split(".")
    found = importlib.import_module(f"maxmargin.{model}.{module}")
    for name in names:
        found = getattr(found, name)
    function = getattr(found, "py_func", found)
    function = getattr(function, "fget", function)
    about = " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())
    return f"{model}/{module}.py", inspect.getsourcelines(function)[1], about


class Table(Directive, ABC):
    """A list-table with a header; subclasses say what its rows are."""

    required_arguments = 1
    header: tuple[str, ...] = ()
    widths = ""

    @abstractmethod
    def rows(self, name: str) -> list[tuple[str, ...]]:
        """The cells of the table for the given model or estimator."""

    def run(self) -> list[nodes.Node]:
        lines = [".. list-table::", "   :header-rows: 1", f"   :widths: {self.widths}", ""]
        for row in [self.header, *self.rows(self.arguments[0])]:
            lines += [f"   {'*' if k == 0 else ' '} - {cell}" for k, cell in enumerate(row)]
        holder = nodes.container()
        self.state.nested_parse(StringList(lines, source=str(Path(__file__))), self.content_offset, holder)
        return holder.children


class Equations(Table):
    """Number in the paper, file and function, what the function says of itself."""

    header = ("in the paper", "in the code", "what it does")
    widths = "15 35 50"

    def rows(self, name: str) -> list[tuple[str, ...]]:
        table = importlib.import_module(f"maxmargin.{name}").EQUATIONS
        rows = []
        for number, target in table.items():
            file, line, about = locate(name, target)
            function = target.partition(".")[2]
            rows.append((number, f"``{file}:{line}`` ``{function}``", escape(about)))
        return rows


class Solvers(Table):
    """The names that the parameter `solver` takes, and what each one is."""

    header = ("``solver``", "what it is", "parameters that only some solvers read")
    widths = "15 55 30"

    def rows(self, name: str) -> list[tuple[str, ...]]:
        table = importlib.import_module(ESTIMATORS[name]).SOLVERS
        return [
            (f"``{key}``", escape(entry.about), ", ".join(f"``{word}``" for word in entry.reads) or "\\ ")
            for key, entry in table.items()
        ]


class Rows(Table):
    """The rows by which "auto" chooses, in their order."""

    header = ("``solver_``", "taken for", "measured in")
    widths = "15 60 25"

    def rows(self, name: str) -> list[tuple[str, ...]]:
        table = importlib.import_module(f"maxmargin.{name}").ROWS
        return [(f"``{row.name}``", escape(row.because), escape(row.measured)) for row in table]


def escape(text: str) -> str:
    """Words as they are: no markup in |x|, coef_ and a*b."""
    for character in "\\|*_`":
        text = text.replace(character, "\\" + character)
    return text


def shown(number: Callable[[str], str]) -> Callable[..., tuple[list[nodes.Node], list[nodes.Node]]]:
    """The role that shows what a function makes of its words."""

    def role(name: str, raw: str, words: str, *more: Any, **options: Any) -> tuple[list, list]:
        return [nodes.Text(number(" ".join(words.split())))], []

    return role


def setup(app):
    counts = Counts(Path(__file__).parents[1] / "experiments" / "results")
    app.add_role("count", shown(counts.__getitem__))
    app.add_role("cell", shown(lambda words: cell(counts.tables, words)))
    app.add_directive("equations", Equations)
    app.add_directive("solvers", Solvers)
    app.add_directive("choice", Rows)
