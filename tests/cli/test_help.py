"""Help pages and shell completion."""

from __future__ import annotations

import io
import os
import pty
import select
import shlex
import subprocess
import sys
import time
from importlib.util import find_spec

import click
import pytest
from click.shell_completion import BashComplete

from maxmargin.cli import command, main


def _paths(group, prefix=()):
    context = click.Context(group)
    for name in group.list_commands(context):
        sub = group.get_command(context, name)
        yield (*prefix, name), sub
        if isinstance(sub, click.Group):
            yield from _paths(sub, (*prefix, name))


COMMANDS = dict(_paths(command))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_option_has_help(path, capsys):
    assert main([*path, "--help"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"Usage: maxmargin {' '.join(path)}")
    for parameter in COMMANDS[path].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{parameter.name} of {path} has no help"


@pytest.mark.parametrize("words", [[], ["datasets"]], ids=["maxmargin", "datasets"])
def test_a_group_alone_shows_its_help(words, capsys):
    assert main(words) == 0
    said = capsys.readouterr()
    assert said.out.startswith("Usage: maxmargin") and "\nCommands:\n" in said.out and not said.err


def test_version(capsys):
    from maxmargin import __version__

    assert main(["--version"]) == 0
    assert __version__ in capsys.readouterr().out


@pytest.fixture
def complete(monkeypatch):
    """Return the completions of the last word."""

    def offered(words, folder=None):
        monkeypatch.chdir(folder or ".")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
        return BashComplete(command, {}, "maxmargin", "_MAXMARGIN_COMPLETE").complete().split()

    return offered


class Shell:
    """An interactive bash on a terminal of its own."""

    def __init__(self, folder):
        (folder / "maxmargin").write_text(f'#!/bin/sh\nexec {sys.executable} -m maxmargin.cli "$@"\n')
        (folder / "maxmargin").chmod(0o755)
        path = f"{folder}{os.pathsep}{os.environ['PATH']}"
        ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-i"],
            env=os.environ | {"PATH": path, "PS1": "> ", "TERM": "dumb", "INPUTRC": "/dev/null"},
            cwd=folder,
            start_new_session=True,
            **dict.fromkeys(("stdin", "stdout", "stderr"), theirs),
        )
        os.close(theirs)
        self.terminal = ours

    def type(self, text, awaited):
        """Type and read until the awaited text is on the screen."""
        os.write(self.terminal, text.encode())
        screen, end = "", time.monotonic() + 120
        while awaited not in screen:
            ready, _, _ = select.select([self.terminal], [], [], max(end - time.monotonic(), 0))
            assert ready, screen
            screen += os.read(self.terminal, 4096).decode()
        return screen

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.terminal)


@pytest.mark.slow
def test_bash_completes(tmp_path):
    (tmp_path / "numbers.csv").touch()
    shell = Shell(tmp_path)
    try:
        shell.type('eval "$(_MAXMARGIN_COMPLETE=bash_source maxmargin)"; echo rea"dy"\n', "ready")
        shell.type("maxmargin fit num\t", "fit numbers.csv ")
        shell.type("-m multilab\t", "-m multilabel ")
        shell.type("--ker\t", "--kernel ")
    finally:
        shell.close()


def test_completion_offers_commands_and_families(complete):
    assert "plain,datasets" in complete("maxmargin d")
    assert "plain,multilabel" in complete("maxmargin warmup m")
    assert "plain,multiclass" in complete("maxmargin fit iris -m multic")


def test_completion_offers_data_sets_and_files(complete, tmp_path):
    (tmp_path / "yesterday.csv").touch()
    (tmp_path / "num.csv").touch()
    offered = complete("maxmargin fit ye", tmp_path)
    assert offered == ["plain,yeast", "plain,yesterday.csv"]
    assert complete("maxmargin fit nu", tmp_path) == ["file,nu"]
    assert complete("maxmargin predict nu", tmp_path) == ["file,nu"]
    assert complete("maxmargin predict m.mm ye", tmp_path) == offered
    assert "plain,yeast" in complete("maxmargin datasets fetch ye")


def test_completion_offers_parameters_and_their_values(complete):
    offered = complete("maxmargin fit -m multilabel --k")
    assert offered == ["plain,--kernel"]
    assert {"plain,--max-iter", "plain,--model"} <= set(complete("maxmargin compare -m multiclass --m"))
    assert complete("maxmargin fit iris -m multiclass --kernel r") == ["plain,rbf"]
    assert complete("maxmargin fit iris -m multilabel --fit-intercept t") == ["plain,true"]


def examples():
    """The command lines that help texts show, in the order of the commands."""
    texts = [command.help or "", *(sub.help or "" for sub in COMMANDS.values())]
    return [line.strip() for text in texts for line in text.splitlines() if " maxmargin " in f" {line} "]


def test_the_examples_of_help_texts_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.csv").write_text("a,b,kind\n" + "0,1,x\n1,0,y\n" * 8)
    (tmp_path / "other.csv").write_text("a,b,kind\n0,2,x\n2,0,y\n")
    (tmp_path / "tags.csv").write_text("a,b,tag_x,tag_y\n0,1,1,0\n1,0,0,1\n1,1,1,1\n")
    (tmp_path / "large.svm").write_text("0,2 1:0.5 3:1\n2 2:4\n0 3:2\n")
    (tmp_path / "shop.csv").write_text("price,title,tags\n" + "9,silk hat,soft;warm\n2,old shoe,\n" * 8)
    (tmp_path / "mails.jsonl").write_text('{"body": "pay now", "tags": ["money"]}\n{"body": "lunch?"}\n' * 4)
    (tmp_path / "new.csv").write_text("id,b,a\n7,1,0\n")
    found = examples()
    assert len(found) >= 10
    for line in found:
        before, _, after = line.partition("maxmargin ")
        words = shlex.split(after.replace("model.mm", "kind.mm" if "csv" in after else "large.mm"))
        words = [{"new.svm": "large.svm", "subjects.mm": "large.mm"}.get(word, word) for word in words]
        if before:
            assert before == "cat new.csv | "
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"b,a\n1,0\n")))
        if words[0] == "export" and find_spec("onnx") is None:
            continue
        assert main(words) == 0, (line, capsys.readouterr().err)
