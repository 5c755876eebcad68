"""The command line: it parses options and prints results.

Each command is a module that is imported when it is used; heavy libraries are imported inside functions.
Exit codes: 0 done, 1 an error in a file or in the data, 2 an error in the command line, 3 an error in this
program, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module

import click

from maxmargin import __version__
from maxmargin.cli.console import RESULT, echo, logging_to_screen

DEBUG = "MAXMARGIN_DEBUG"
# Commands and their modules.
MODULES = {
    "fit": "fit",
    "predict": "predict",
    "evaluate": "evaluate",
    "compare": "compare",
    "report": "evaluate",
    "explain": "explain",
    "info": "explain",
    "export": "explain",
    "datasets": "datasets",
    "demo": "demo",
    "reproduce": "reproduce",
    "warmup": "reproduce",
}


class Commands(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(MODULES)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in MODULES:
            return None
        found: click.Command = getattr(import_module(f"{__name__}.{MODULES[name]}"), f"{name}_command")
        return found


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog=f"{DEBUG}=1 shows the traceback of an error. Shell completion: "
    'eval "$(_MAXMARGIN_COMPLETE=bash_source maxmargin)" (or zsh_source, fish_source).',
)
@click.version_option(__version__, prog_name="maxmargin")
@click.pass_context
def command(context: click.Context) -> None:
    """Max-margin classification with many labels. `maxmargin demo` shows examples.

    \b
    maxmargin fit flags -m multilabel --scale standard -o flags.mm
    maxmargin report flags.mm flags -o flags.html
    maxmargin predict flags.mm flags
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; errors of the user are printed as one line."""
    with logging_to_screen():
        return _run(None if arguments is None else list(arguments))


def _run(arguments: list[str] | None) -> int:
    try:
        code = command.main(arguments, prog_name="maxmargin", standalone_mode=False)
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.ClickException as error:
        echo(_usage_error(error), logging.ERROR)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        echo("Stopped.", RESULT)
        return 130
    except BrokenPipeError:
        # The reader of stdout has closed it; without this, Python prints an error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        line = _one_line(error)
        if isinstance(error, (ValueError, OSError, ImportError, MemoryError)):
            echo(line, logging.ERROR)
            return 1
        bug = f"This is a bug: please report it with the traceback that {DEBUG}=1 shows."
        echo(f"maxmargin failed ({type(error).__name__}: {line}). {bug}", logging.ERROR)
        return 3
    return code if isinstance(code, int) else 0


def _usage_error(error: click.ClickException) -> str:
    """Return an error in the command line as one line, with a suggestion and the help page."""
    context = getattr(error, "ctx", None)
    words = " ".join(error.format_message().split())
    missing = re.match(r"No such command '(.*)'\.$", words)
    if missing and context:  # newer versions of click suggest commands themselves
        near = get_close_matches(missing[1], context.command.list_commands(context))
        words += f" Did you mean {near[0]!r}?" if near else ""
    return words + (f" (see {context.command_path} --help)" if context else "")


def _one_line(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        details = " ".join(str(error).split())
        return f"not enough memory ({details})" if details else "not enough memory"
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    words = [str(error) or type(error).__name__, *getattr(error, "__notes__", ())]
    return " ".join(" ".join(words).split())
