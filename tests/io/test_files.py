"""Files on disk: atomic writes that keep permissions and links, and limits on packed files."""

from __future__ import annotations

import errno
import functools
import gzip
import lzma
import os
import signal
import stat
import subprocess
import sys
import tarfile
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import maxmargin
from maxmargin.datasets import DataFormatError, read_svmlight
from maxmargin.io import files
from maxmargin.io.files import atomic_write
from tests.fuzz.kills import kill_at_random
from tests.fuzz.readers import READERS

posix = pytest.mark.skipif(os.name != "posix", reason="links, permissions and locks of POSIX")


def write(path, content=b"new"):
    with atomic_write(path) as out:
        out.write(content)


@posix
def test_a_replaced_file_keeps_its_permissions(tmp_path):
    path = tmp_path / "m.mm"
    path.write_bytes(b"old")
    for mode in (0o600, 0o640, 0o666):
        path.chmod(mode)
        write(path)
        assert stat.S_IMODE(path.stat().st_mode) == mode and path.read_bytes() == b"new"


@posix
def test_a_new_file_has_the_permissions_of_any_other(tmp_path):
    (tmp_path / "other").touch()
    write(tmp_path / "m.mm")
    assert (tmp_path / "m.mm").stat().st_mode == (tmp_path / "other").stat().st_mode


@posix
def test_a_symbolic_link_is_followed(tmp_path):
    (tmp_path / "models").mkdir()
    real, link, chain = tmp_path / "models" / "v1.mm", tmp_path / "latest.mm", tmp_path / "chain.mm"
    link.symlink_to(real)
    chain.symlink_to("latest.mm")
    for path, content in ((link, b"through a link to nothing"), (link, b"over"), (chain, b"two links")):
        write(path, content)
        assert link.is_symlink() and chain.is_symlink() and real.read_bytes() == content
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["chain.mm", "latest.mm", "models", "v1.mm"]


@posix
def test_pipes_devices_and_loops_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    model = maxmargin.MultiClassSVC()
    with pytest.raises(OSError, match="pipe or a device"):
        maxmargin.save(model, tmp_path / "pipe")
    with pytest.raises(OSError, match="pipe or a device"):
        maxmargin.save(model, "/dev/null")
    with pytest.raises(OSError, match="cannot be written") as refusal:
        maxmargin.save(model, tmp_path / "loop")
    assert refusal.value.errno == errno.ELOOP
    with pytest.raises(IsADirectoryError):
        maxmargin.save(model, tmp_path)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["loop", "pipe"]


KILLED = """
import sys, time
from maxmargin.io.files import atomic_write
from tests.fuzz.kills import kill_at_random
with atomic_write(sys.argv[1]) as out:
    out.write(b"half")
    out.flush()
    print("ready", flush=True)
    time.sleep(60)
"""


def writer(path):
    """A process in the middle of writing."""
    process = subprocess.Popen([sys.executable, "-c", KILLED, os.fspath(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    process.stdout.close()
    return process


@posix
def test_leftovers_of_the_killed_are_removed_and_nothing_else(tmp_path):
    path = tmp_path / "m.mm"
    dead, living = writer(path), writer(path)
    dead.send_signal(signal.SIGKILL)
    dead.wait()
    others = [".m.mm.part", ".m.mm.notours!.part", ".other.mm.abcdefgh.part", ".m.mm.ABCDEFGH.part", "x.part"]
    for name in others:
        (tmp_path / name).touch()
    (tmp_path / ".m.mm.aaaaaaaa.part").symlink_to("x.part")
    (tmp_path / ".m.mm.bbbbbbbb.part").mkdir()
    assert len(list(tmp_path.glob(".m.mm.????????.part"))) == 6
    write(path)
    left = {p.name for p in tmp_path.iterdir()}
    passing = left - {*others, "m.mm", ".m.mm.aaaaaaaa.part", ".m.mm.bbbbbbbb.part"}
    assert {*others, "m.mm", ".m.mm.aaaaaaaa.part", ".m.mm.bbbbbbbb.part"} <= left
    assert len(passing) == 1  # of the writer that lives
    living.kill()
    living.wait()
    write(path)
    assert not passing & {p.name for p in tmp_path.iterdir()}


@posix
def test_old_leftovers_of_other_files_in_the_folder_are_removed(tmp_path):
    monday = tmp_path / "monday.mm"
    dead, living = writer(monday), writer(tmp_path / "sunday.mm")
    dead.send_signal(signal.SIGKILL)
    dead.wait()
    (left,) = tmp_path.glob(".monday.mm.*.part")
    (held,) = tmp_path.glob(".sunday.mm.*.part")
    foreign = tmp_path / ".backup.20240101.part"
    foreign.touch(0o644)
    for path in (foreign, held):
        os.utime(path, (0, 0))
    write(tmp_path / "tuesday.mm")
    assert left.exists()  # perhaps of a writer on another machine
    os.utime(left, (0, 0))
    write(tmp_path / "wednesday.mm")
    assert not left.exists() and foreign.exists() and held.exists()
    living.kill()
    living.wait()


@pytest.mark.slow
@posix
def test_two_hundred_kills_break_nothing(tmp_path):
    assert kill_at_random(tmp_path, 200) == 0


@posix
def test_some_kills_break_nothing(tmp_path):
    assert kill_at_random(tmp_path, 12, seed=1) == 0


def test_an_error_while_writing_leaves_the_old_file(tmp_path):
    path = tmp_path / "m.mm"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError), atomic_write(path) as out:
        out.write(b"new")
        raise RuntimeError
    assert [p.name for p in tmp_path.iterdir()] == ["m.mm"] and path.read_bytes() == b"old"


def test_many_writers_at_once_leave_one_whole_file(tmp_path):
    path = tmp_path / "m.mm"
    contents = [bytes([65 + k]) * 10_000 for k in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda content: [write(path, content) for _ in range(20)], contents))
    assert path.read_bytes() in contents and np.size(list(tmp_path.iterdir())) == 1


PACKERS = {"gz": gzip.compress, "xz": lzma.compress}


@functools.cache
def bomb(packer, archive):
    content = b" " * (64 << 20)
    if not archive:
        return PACKERS[packer](content)
    member = tarfile.TarInfo("inbox/1")
    member.size = len(content)
    return PACKERS[packer](member.tobuf() + content)


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize("name", ["svmlight", "arff", "csv", "xml", "letter", "mailbox"])
def test_a_file_made_to_fill_the_memory_is_refused(name, packer, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MOST", 1 << 20)
    path = tmp_path / "bomb"
    path.write_bytes(bomb(packer, name == "mailbox"))
    tracemalloc.start()
    try:
        with pytest.raises(DataFormatError, match=r"if you trust the file, unpack it"):
            READERS[name][0](path)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("packer", PACKERS)
def test_a_large_table_that_shrinks_as_tables_do_is_read(packer, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MOST", 1 << 10)
    rng = np.random.default_rng(0)
    text = "".join(f"{k % 2} 1:{value:.2f}\n" for k, value in enumerate(rng.random(2000)))
    path = tmp_path / "table"
    path.write_bytes(PACKERS[packer](text.encode()))
    assert read_svmlight(path, multilabel=False).X.shape == (2000, 1)
