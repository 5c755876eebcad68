"""Directives for tables that are read from the code and from the results.

``.. equations:: multilabel``: where each equation of the paper is in the code.
``.. solvers:: MultiLabelSVC``: the values of the parameter `solver`.
``.. choice:: structured.multiclass_choice``: the rules by which "auto" chooses.
``.. results:: races``: a table of `speed`, one of "races", "defaults" and "demo".
"""

from __future__ import annotations

import importlib
import inspect
from abc import ABC, abstractmethod
from pathlib import Path

import speed
from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

from maxmargin._names import ESTIMATORS


def locate(model: str, target: str) -> tuple[str, int, str]:
    """Return file, line and first sentence of the function that an equation table names."""
    module, *names = target.split(".")
    found = importlib.import_module(f"maxmargin.{model}.{module}")
    for name in names:
        found = getattr(found, name)
    function = getattr(found, "py_func", found)
    function = getattr(function, "fget", function)
    about = " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())
    return f"{model}/{module}.py", inspect.getsourcelines(function)[1], about


class Table(Directive, ABC):
    """A list-table with a header; subclasses provide the rows."""

    required_arguments = 1
    header: tuple[str, ...] = ()
    widths = ""

    @abstractmethod
    def rows(self, name: str) -> list[tuple[str, ...]]:
        """Return the cells of the table for the argument of the directive."""

    def run(self) -> list[nodes.Node]:
        rows = self.rows(self.arguments[0])
        lines = [".. list-table::", "   :header-rows: 1", "   :class: wide", f"   :widths: {self.widths}", ""]
        for row in [self.header, *rows]:
            lines += [f"   {'*' if k == 0 else ' '} - {cell}" for k, cell in enumerate(row)]
        holder = nodes.container()
        self.state.nested_parse(StringList(lines, source=str(Path(__file__))), self.content_offset, holder)
        return holder.children


class Equations(Table):
    """Number in the paper, file and function, first sentence of the function."""

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
    """The values of the parameter `solver`, with a description of each."""

    header = ("``solver``", "description", "parameters that only some solvers read")
    widths = "15 55 30"

    def rows(self, name: str) -> list[tuple[str, ...]]:
        table = importlib.import_module(ESTIMATORS[name]).SOLVERS
        return [
            (f"``{key}``", escape(entry.about), ", ".join(f"``{word}``" for word in entry.reads) or "\\ ")
            for key, entry in table.items()
        ]


class Rows(Table):
    """The rules by which "auto" chooses, in their order."""

    header = ("``solver_``", "condition", "measured in")
    widths = "15 60 25"

    def rows(self, name: str) -> list[tuple[str, ...]]:
        table = importlib.import_module(f"maxmargin.{name}").ROWS
        return [(f"``{row.name}``", escape(row.because), escape(row.measured)) for row in table]


class Results(Table):
    """A table of `speed`."""

    def rows(self, name: str) -> list[tuple[str, ...]]:
        if name == "races":
            self.header = ("problem", "gap", "maxmargin, s", "fastest peer", "peer, s", "ratio", "file")
            self.widths = "30 8 12 22 10 8 20"
            return [
                (
                    escape(race.problem), f"{race.target:g}", f"{race.ours.seconds:.3g}",
                    escape(race.peer.who), f"{race.peer.seconds:.3g}", f"{race.ratio:.1f}",
                    f"``{race.file}.csv``",
                )
                for race in speed.races()
            ]  # fmt: skip
        if name == "defaults":
            self.header = ("model", "peer", "better", "equal", "worse", "time ratio", "ratio above 1.5 on")
            self.widths = "15 14 8 8 8 12 35"
            return [tuple(escape(cell) or "\\ " for cell in row) for row in speed.default_rows()]
        self.header = ("task", "measure", "maxmargin", "baseline", "fit", "prediction", "size")
        self.widths = "20 12 20 20 10 10 8"
        return [tuple(escape(cell) for cell in row) for row in speed.demo_rows()]


def escape(text: str) -> str:
    """Escape markup in |x|, coef_ and a*b."""
    for character in "\\|*_`":
        text = text.replace(character, "\\" + character)
    return text


def setup(app):
    app.add_directive("equations", Equations)
    app.add_directive("solvers", Solvers)
    app.add_directive("choice", Rows)
    app.add_directive("results", Results)
