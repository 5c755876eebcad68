"""The command line: parses and prints, no maths.

Heavy imports stand inside the functions, so that `--help` and shell completion answer at once.
Exit codes: 0 done, 1 something is wrong with a file or with the
data, 2 the command line is wrong, 3 a fault of this program, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches

import click

from maxmargin import __version__
from maxmargin.cli.commands import (
    evaluate_command,
    fit_command,
    report_command,
    reproduce_command,
)
from maxmargin.cli.compare import compare_command
from maxmargin.cli.console import RESULT, say, speaking
from maxmargin.cli.datasets import datasets_command
from maxmargin.cli.demo import demo_command
from maxmargin.cli.explain import explain_command, export_command
from maxmargin.cli.info import info_command
from maxmargin.cli.predict import predict_command
from maxmargin.cli.warmup import warmup_command

DEBUG = "MAXMARGIN_DEBUG"


@click.group(
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog=f"Set {DEBUG}=1 to see where an error comes from. Shell completion: "
    'eval "$(_MAXMARGIN_COMPLETE=bash_source maxmargin)" (or zsh_source, fish_source).',
)
@click.version_option(__version__, prog_name="maxmargin")
@click.pass_context
def command(context: click.Context) -> None:
    """Max-margin classification with many labels. `maxmargin demo` shows what it does.

    \b
    maxmargin fit flags -m multilabel --scale standard -o flags.mm
    maxmargin report flags.mm flags -o flags.html
    maxmargin predict flags.mm flags
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for _command in (
    fit_command,
    predict_command,
    evaluate_command,
    compare_command,
    report_command,
    explain_command,
    info_command,
    export_command,
    datasets_command,
    reproduce_command,
    warmup_command,
    demo_command,
):
    command.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; a user's mistake becomes one line."""
    with speaking():
        return _run(None if arguments is None else list(arguments))


def _run(arguments: list[str] | None) -> int:
    try:
        answer = command.main(arguments, prog_name="maxmargin", standalone_mode=False)
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.ClickException as mistake:
        say(_mistake(mistake), logging.ERROR)
        return mistake.exit_code
    except (click.Abort, KeyboardInterrupt):
        say("Stopped.", RESULT)
        return 130
    except BrokenPipeError:
        # The reader of our output has gone; keep Python from complaining about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, OSError, ImportError, MemoryError) as error:
        if os.environ.get(DEBUG):
            raise
        say(_one_line(error), logging.ERROR)
        return 1
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        say(
            f"maxmargin itself failed ({type(error).__name__}: {_one_line(error)}). Please report it; "
            f"{DEBUG}=1 shows where it happened.",
            logging.ERROR,
        )
        return 3
    return answer if isinstance(answer, int) else 0


def _mistake(mistake: click.ClickException) -> str:
    """A mistake on the command line as one line that says where to read on."""
    context = getattr(mistake, "ctx", None)
    words = " ".join(mistake.format_message().split())
    missing = re.match(r"No such command '(.*)'\.$", words)
    if missing and context:  # newer versions of click say more
        near = get_close_matches(missing[1], context.command.list_commands(context))
        words += f" Did you mean {near[0]!r}?" if near else ""
    return words + (f" (see {context.command_path} --help)" if context else "")


def _one_line(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return f"not enough memory ({' '.join(str(error).split()) or 'nothing more is known'})"
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    words = [str(error) or type(error).__name__, *getattr(error, "__notes__", ())]
    return " ".join(" ".join(words).split())
