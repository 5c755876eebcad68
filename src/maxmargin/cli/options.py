"""What all commands share: how much they print, where it is logged, and options that are given once."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from maxmargin.cli.console import log, speak

ASKED = "maxmargin.asked"


def _noted(context: click.Context, option: click.Parameter, value: Any) -> None:
    context.meta.setdefault(ASKED, {})[option.name] = value


# `--verbose 1` is a parameter of the estimators, so the option has its short name only.
_HOW: dict[str, Any] = {"expose_value": False, "callback": _noted}
VERBOSITY = [
    click.Option(["-v", "verbose"], is_flag=True, help="Print more about each step.", **_HOW),
    click.Option(["-q", "--quiet"], is_flag=True, help="Print errors and results only.", **_HOW),
    click.Option(
        ["--log"],
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Append all messages, those of -v too, to FILE.",
        **_HOW,
    ),
]


class Command(click.Command):
    """A command that prints as much as it is asked to, and takes an option with one value once."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params = [*self.params, *VERBOSITY]

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        words = shlex.join(args)
        if not context.resilient_parsing:
            _once(context, self.make_parser(context).parse_args(args=list(args))[2])
        rest = super().parse_args(context, args)
        asked = context.meta[ASKED]
        if asked["verbose"] and asked["quiet"]:
            raise click.UsageError("Give one of -v and --quiet.", context)
        if not context.resilient_parsing:
            speak(**asked)
            log.debug("%s %s", context.command_path, words)
        return rest


class Group(click.Group):
    """A group of such commands."""

    command_class = Command


def _once(context: click.Context, order: Sequence[click.Parameter]) -> None:
    """Refuse an option with one value that is given again."""
    seen = set()
    for option in order:
        several = option.multiple if isinstance(option, click.Option) else True
        switch = isinstance(option, click.Option) and option.is_flag and not option.secondary_opts
        if option.name in seen and not (several or switch):
            raise click.UsageError(f"{option.opts[-1]} is given twice, but it takes one value.", context)
        seen.add(option.name)
