"""Every command explains itself, and shell completion knows them."""

from __future__ import annotations

import os
import subprocess
import sys

import click
import pytest

from maxmargin.cli import command, main


def _paths(group, prefix=()):
    for name, sub in group.commands.items():
        yield (*prefix, name), sub
        if isinstance(sub, click.Group):
            yield from _paths(sub, (*prefix, name))


COMMANDS = dict(_paths(command))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_says_what_every_option_does(path, capsys):
    assert main([*path, "--help"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"Usage: maxmargin {' '.join(path)}")
    for parameter in COMMANDS[path].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{parameter.name} of {path} has no help"


def test_version(capsys):
    from maxmargin import __version__

    assert main(["--version"]) == 0
    assert __version__ in capsys.readouterr().out


def test_completion_offers_commands_and_families():
    def complete(words, position):
        environment = os.environ | {
            "_MAXMARGIN_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(position),
        }
        return subprocess.run(
            [sys.executable, "-c", "import sys; from maxmargin.cli import main; sys.exit(main())"],
            env=environment,
            capture_output=True,
            text=True,
        ).stdout

    assert "plain,datasets" in complete("maxmargin d", 1)
    assert "plain,multilabel" in complete("maxmargin warmup m", 2)
