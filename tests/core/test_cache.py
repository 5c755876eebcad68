"""Machine code on disk: found again, refused when damaged, never a reason to fail."""

import importlib.util
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numba
import numpy as np
import pytest

from maxmargin.core import cache
from maxmargin.core.interrupt import uninterrupted

needs_jit = pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
SOURCE = """
from maxmargin.core.jit import compiled

@compiled
def twice(x):
    return x * 2
"""


@pytest.fixture
def load(tmp_path, monkeypatch):
    """A function that loads a file with one loop as if in a new process."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    file = tmp_path / "_loops.py"
    file.write_text(SOURCE)
    cache.tell_once.cache_clear()

    def fresh(name="_loops"):
        spec = importlib.util.spec_from_file_location(name, file)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # where a loop's code looks its module up
        spec.loader.exec_module(module)
        return module.twice

    yield fresh
    sys.modules.pop("_loops", None)


def entries(tmp_path):
    return list((tmp_path / "cache").rglob("*.loop"))


def hits(loop):
    return sum(loop.stats.cache_hits.values())


@needs_jit
def test_an_entry_is_found_again(load, tmp_path):
    assert load()(21) == 42
    assert len(entries(tmp_path)) == 1
    again = load()
    assert again(21) == 42 and hits(again) == 1
    assert again(0.5) == 1.0 and len(entries(tmp_path)) == 2


def empty(entry):
    entry.write_bytes(b"")


def truncate(entry):
    entry.write_bytes(entry.read_bytes()[:-100])


def flip(entry):
    data = bytearray(entry.read_bytes())
    data[len(data) // 2] ^= 1
    entry.write_bytes(data)


def replace_by_folder(entry):
    entry.unlink()
    entry.mkdir()


def replace_by_pickle(entry):
    entry.write_bytes(b"\x80\x04cos\nsystem\n(S'exit 1'\ntR.")


@needs_jit
@pytest.mark.parametrize("damage", [empty, truncate, flip, replace_by_folder, replace_by_pickle])
def test_a_damaged_entry_is_compiled_again_and_said_once(load, tmp_path, caplog, damage):
    load()(1)
    (entry,) = entries(tmp_path)
    damage(entry)
    with caplog.at_level(logging.WARNING, logger="maxmargin"):
        loop = load()
        assert loop(21) == 42 and hits(loop) == 0
        assert sum("compiling again" in record.message for record in caplog.records) == 1
    if damage is not replace_by_folder:
        healed = load()
        assert healed(21) == 42 and hits(healed) == 1


@needs_jit
def test_a_full_disk_fails_no_call(load, tmp_path, monkeypatch, caplog):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.os, "replace", full)
    with caplog.at_level(logging.WARNING, logger="maxmargin"):
        loop = load()
        assert loop(21) == 42 and loop(0.5) == 1.0
    assert sum("not kept" in record.message for record in caplog.records) == 1
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


@needs_jit
def test_without_a_folder_to_write_to_nothing_is_kept(load, monkeypatch):
    monkeypatch.setattr(cache.CompileResultCacheImpl, "_locator_classes", [])
    loop = load()
    assert loop.stats.cache_path is None
    assert loop(21) == 42


@needs_jit
def test_entries_of_older_sources_make_room(load, tmp_path):
    load()(1)
    (old,) = entries(tmp_path)
    source = tmp_path / "_loops.py"
    source.write_text(SOURCE.replace("* 2", "* 3"))
    # Python takes a file of the same size and second for the one it has compiled.
    os.utime(source, (0, 0))
    cache.stamp.cache_clear()
    assert load()(2) == 6
    (new,) = entries(tmp_path)
    assert new != old


@needs_jit
def test_what_a_killed_process_left_is_removed(load, tmp_path):
    load()(1)
    (entry,) = entries(tmp_path)
    left, fresh = entry.with_name(f"a{cache.PART}"), entry.with_name(f"b{cache.PART}")
    for part in (left, fresh):
        part.write_bytes(b"half")
    os.utime(left, (0, 0))
    load()(0.5)
    assert fresh.exists() and not left.exists()


KILLED = """
import os, sys
from pathlib import Path
from maxmargin.core import cache
def die(*args):
    os.kill(os.getpid(), 9)
if sys.argv[2] == "before":
    cache.os.replace = die
cache.write_entry(Path(sys.argv[1]), b"new" * 1000)
os.kill(os.getpid(), 9)
"""


@needs_jit
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_killed_process_leaves_the_old_entry_or_the_new(tmp_path, moment):
    place = tmp_path / "some.loop"
    cache.write_entry(place, b"old")
    environment = dict(os.environ, PYTHONPATH=str(Path(__file__).parents[2] / "src"))
    subprocess.run([sys.executable, "-c", KILLED, str(place), moment], env=environment, check=False)
    assert cache.read_entry(place) == (b"old" if moment == "before" else b"new" * 1000)


@needs_jit
def test_the_package_s_own_entries_come_first(load, tmp_path, monkeypatch):
    """An entry written for a level is used by a processor that has it, and by no other."""
    level = cache.levels()
    if not level:
        pytest.skip("no prebuilt levels for this processor")
    home = tmp_path / "_prebuilt"
    monkeypatch.setattr(cache, "PREBUILT", home)
    first = load("maxmargin._loops")
    codegen = first.targetctx.codegen()
    target = codegen.magic_tuple()
    monkeypatch.setattr(type(codegen), "magic_tuple", lambda self: (target[0], level[0], ""))
    first(1)
    home.mkdir()
    (entry,) = entries(tmp_path)
    entry.rename(home / entry.name)
    monkeypatch.setattr(type(codegen), "magic_tuple", lambda self: target)
    found = load("maxmargin._loops")
    assert found(21) == 42 and hits(found) == 1 and not entries(tmp_path)
    monkeypatch.setattr(cache, "levels", list)
    other = load("maxmargin._loops")
    assert other(21) == 42 and hits(other) == 0


def test_levels_follow_the_features_of_the_processor(monkeypatch):
    monkeypatch.setattr(numba.config, "CPU_NAME", None)
    monkeypatch.setattr(cache.platform, "machine", lambda: "x86_64")
    v3, v4 = cache.LEVELS["x86-64-v3"], cache.LEVELS["x86-64-v4"]

    def found(*features):
        monkeypatch.setattr(
            cache.llvmlite.binding, "get_host_cpu_features", lambda: dict.fromkeys(features, True)
        )
        cache.levels.cache_clear()
        return cache.levels()

    try:
        assert found(*v3, *v4) == ["x86-64-v4", "x86-64-v3"]
        assert found(*v3) == ["x86-64-v3"]
        assert found(*v3[1:], *v4) == []
        monkeypatch.setattr(cache.platform, "machine", lambda: "aarch64")
        assert found(*v3, *v4) == []
    finally:
        cache.levels.cache_clear()


@pytest.fixture
def ctrl_c_is_heard():
    """A job in the background of a shell inherits that SIGINT is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c_is_heard")
def test_ctrl_c_waits_for_the_end():
    order = []
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            order.append(None)
        order = ["done"]
    assert order == ["done"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


INTERRUPTED = """
import os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)
# Ctrl-C as soon as numba is being imported, and again as soon as a loop is being compiled.
import builtins
plain = builtins.__import__
def strike(name, *rest, **more):
    if name.startswith("numba") and name not in struck and len(struck) < 40:
        struck.append(name)
        os.kill(os.getpid(), signal.SIGINT)
    return plain(name, *rest, **more)
struck = []
builtins.__import__ = strike
try:
    import maxmargin.core.jit
except KeyboardInterrupt:
    print("interrupted")
builtins.__import__ = plain
from maxmargin.core.jit import compiled
from numba.core import event
class Strike(event.Listener):
    def on_start(self, event):
        os.kill(os.getpid(), signal.SIGINT)
    def on_end(self, event):
        pass
@compiled
def twice(x):
    return x * 2
with event.install_listener("numba:compile", Strike()):
    try:
        twice(1)
    except KeyboardInterrupt:
        print("interrupted")
print(twice(21), twice(0.5))
"""


@needs_jit
def test_ctrl_c_while_numba_is_imported_or_compiles_leaves_it_usable(tmp_path):
    environment = dict(os.environ, PYTHONPATH=str(Path(__file__).parents[2] / "src"))
    environment |= {"MAXMARGIN_JIT_CACHE": "0", "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["interrupted", "interrupted", "42", "1.0"], done.stderr


def fit(seed):
    from maxmargin import MultiClassSVC

    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 5))
    return MultiClassSVC(tol=1e-2, random_state=seed).fit(X, X[:, :3].argmax(axis=1)).coef_


def test_two_fits_in_two_threads_are_two_fits():
    alone = [fit(seed) for seed in (0, 1)]
    together = [None, None]

    def work(seed):
        together[seed] = fit(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(together, alone)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_forked_after_a_fit_can_fit(tmp_path):
    expected = fit(0)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(60)
            code = 0 if np.array_equal(fit(0), expected) else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
