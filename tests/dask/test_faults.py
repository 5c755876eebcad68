"""Lost workers, failed partitions and killed processes: the fit survives or ends with a clear error."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, KilledWorker, LocalCluster

import maxmargin
from maxmargin import dask as on_cluster
from maxmargin.dask.cluster import ATTEMPTS, Cluster, connected, local_cluster
from tests.dask.conftest import Inline


class Shaky(Inline):
    """A client that loses a worker at every fifth call of `gather`."""

    def __init__(self):
        self.calls = 0

    def gather(self, answers):
        self.calls += 1
        if self.calls > 4 and self.calls % 5 == 0:
            raise KilledWorker("task", "worker", 3)
        return answers


MODELS = {
    "MultiLabelSVC": {"partition": "rows", "working_rows": 20},
    "MultiClassSVC": {"working_rows": 20},
}


@pytest.mark.parametrize("name", MODELS)
def test_lost_workers_do_not_change_the_answer(name):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3))
    Y = (X + rng.normal(size=(50, 3)) > 0).astype(int)
    y = Y.sum(axis=1) if "Class" in name else Y
    best = getattr(maxmargin, name)(tol=1e-7, random_state=0).fit(X, y)
    parts = [dask.delayed((X[a : a + 20], y[a : a + 20])) for a in range(0, 50, 20)]
    client = Shaky()
    model = getattr(on_cluster, name)(tol=1e-7, random_state=0, **MODELS[name]).fit(parts, client=client)
    assert client.calls > 5
    assert model.duality_gap_ <= 1e-7
    assert model.primal_objective_ == pytest.approx(best.primal_objective_, rel=1e-6)


@pytest.mark.parametrize("name", ["ChainSVC", "SparseMultiClassSVC", "SparseMultiLabelSVC", "SubmodularSVC"])
def test_models_without_a_cluster_version_raise_an_error(name):
    with pytest.raises(ImportError, match=f"fit maxmargin.{name} on one machine"):
        getattr(on_cluster, name)


def lost():
    raise KilledWorker("task", "worker", 3)


def silent():
    raise OSError("no answer")


def test_repeated_losses_of_workers_end_the_fit():
    with pytest.raises(RuntimeError, match=f"lost {ATTEMPTS} times.*memory"):
        Cluster(Inline()).retry(lost)


def test_a_lost_scheduler_is_reported():
    client = Inline()
    client.status = "closed"
    for trouble in (lost, silent):
        with pytest.raises(ConnectionError, match="scheduler is lost"), connected(client) as cluster:
            cluster.retry(trouble)
    with pytest.raises(OSError, match="no answer"), connected(Inline()) as cluster:
        cluster.retry(silent)

    class Empty(Inline):
        def wait_for_workers(self, n, timeout):
            raise TimeoutError

    with pytest.raises(ConnectionError, match="start some"):
        Cluster(Empty()).retry(lost)


@pytest.mark.parametrize("name", MODELS)
def test_an_empty_list_of_partitions_is_refused(client, name):
    for given in ([[]], [[], []], [()]):
        with pytest.raises(ValueError, match="no partitions"):
            getattr(on_cluster, name)().fit(*given, client=client)


@pytest.mark.parametrize("name", MODELS)
def test_missing_labels_are_refused(client, name):
    model = getattr(on_cluster, name)()
    for X in (da.eye(3), np.eye(3)):
        with pytest.raises(ValueError, match=r"target y is None; pass .* delayed pairs \(X, y\)"):
            model.fit(X, client=client)
    with pytest.raises(ValueError, match="y is a Dask collection and X is none"):
        model.fit(np.eye(3), da.arange(3), client=client)


def disk_gone():
    raise OSError("disk gone")


@pytest.mark.parametrize("place", ["processes", "here"])
@pytest.mark.parametrize("name", MODELS)
def test_a_partition_that_cannot_be_read_is_named(request, name, place):
    client = "here" if place == "here" else request.getfixturevalue(place)
    parts = [dask.delayed((np.eye(3), np.arange(3))) for _ in range(4)]
    parts[2] = dask.delayed(disk_gone)()
    with pytest.raises(OSError, match="disk gone") as caught:
        getattr(on_cluster, name)().fit(parts, client=client)
    assert caught.type is OSError
    assert caught.value.__notes__ == ["in partition 2 of 4 (counted from 0)"]


@pytest.mark.parametrize("place", ["processes", "here"])
def test_a_failure_that_all_partitions_need_is_reported_once(request, place):
    client = "here" if place == "here" else request.getfixturevalue(place)
    table = dask.delayed(disk_gone)()
    with pytest.raises(OSError, match="disk gone") as caught:
        on_cluster.MultiLabelSVC().fit([table[k] for k in range(3)], client=client)
    assert caught.value.__notes__ == ["none of the 3 partitions can be read"]


def test_errors_of_workers_name_the_failed_partitions():
    cluster = Cluster(Inline())
    cluster.blocks = [SimpleNamespace(status=status) for status in ("error", "finished", "error")]
    with pytest.raises(OSError) as caught, cluster.naming():
        disk_gone()
    assert caught.value.__notes__ == ["in partitions 0, 2 of 3 (counted from 0)"]
    cluster.blocks *= 5
    with pytest.raises(OSError) as caught, cluster.naming():
        disk_gone()
    assert caught.value.__notes__ == ["in partitions 0, 2, 3, 5, 6, ... of 15 (counted from 0)"]
    with pytest.raises(ValueError) as caught, cluster.naming():
        raise ValueError("Partition 2: a pair (X, y) was expected.")
    assert not hasattr(caught.value, "__notes__")


def profiling():
    return dask.config.get("distributed.worker.profile.enabled")


def faulted_in():
    """Page faults of a second array of 8 MiB, after the first was freed."""
    import resource

    np.ones(1 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(1 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def test_workers_of_a_local_cluster_do_not_profile_themselves(processes):
    assert set(processes.run(profiling).values()) == {False}
    assert set(processes.nthreads().values()) == {1} and len(processes.nthreads()) == 2
    assert profiling(), "the setting is for these workers alone"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the allocator is glibc's")
def test_workers_of_a_local_cluster_keep_freed_memory(processes):
    assert max(processes.gather([processes.submit(faulted_in, pure=False) for _ in range(2)])) < 100


def test_a_local_cluster_needs_a_worker():
    with pytest.raises(ValueError, match="n_workers must be at least 1"):
        local_cluster(0)


def test_very_different_sizes_and_weights_of_zero(client):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    Y = (X[:, :2] > 0).astype(int)
    weight = np.ones(300)
    weight[:2] = 0
    best = maxmargin.MultiLabelSVC(tol=1e-8, random_state=0).fit(X, Y, weight)
    cuts = [slice(0, 2), slice(2, 3), slice(3, 300)]
    parts = [dask.delayed((X[rows], Y[rows], weight[rows])) for rows in cuts]
    model = on_cluster.MultiLabelSVC(tol=1e-8, partition="rows", working_rows=90, random_state=0)
    model.fit(parts, client=client)
    assert model.primal_objective_ == pytest.approx(best.primal_objective_, rel=1e-6)


FITS = """
import sys, dask, numpy as np
from distributed import Client
from maxmargin.dask import MultiLabelSVC
def rows(k):
    rng = np.random.default_rng(k)
    X = rng.normal(size=(60, 20))
    return X, (X[:, :4] + 3 * rng.normal(size=(60, 4)) > 0).astype(int)
if __name__ == "__main__":
    with Client(sys.argv[1], timeout=20) as client:
        while True:
            model = MultiLabelSVC(partition="rows", working_rows=200, random_state=0)
            model.fit([dask.delayed(rows)(k) for k in range(6)], client=client)
            print(model.n_iter_, flush=True)
"""


def within(seconds, condition):
    """Whether a condition becomes true within some seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.1)
    return False


@pytest.fixture
def fitting(tmp_path):
    """Start a process that fits in a loop, and wait for its first fit."""
    script = tmp_path / "fits.py"
    script.write_text(FITS)
    begun = []

    def begin(address):
        words = [sys.executable, str(script), address]
        begun.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        assert int(begun[0].stdout.readline()) >= 1
        return begun[0]

    yield begin
    for process in begun:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_killed_client_leaves_no_tasks_behind(fitting):
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        process = fitting(cluster.scheduler_address)
        # There may be a moment without tasks between two fits.
        assert within(60, lambda: bool(cluster.scheduler.tasks))
        process.kill()
        process.wait()
        assert within(60, lambda: not cluster.scheduler.tasks)
        assert client.submit(sum, [1, 2]).result() == 3


@pytest.mark.slow
def test_a_killed_scheduler_ends_the_fit_with_an_error(fitting, tmp_path):
    words = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    words += ["--scheduler-file", str(tmp_path / "scheduler.json"), "--no-dashboard"]
    scheduler = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    worker = None
    try:
        while not (tmp_path / "scheduler.json").exists():
            time.sleep(0.2)
        time.sleep(1)
        address = json.loads((tmp_path / "scheduler.json").read_text())["address"]
        worker = subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny"],
            stderr=subprocess.DEVNULL,
        )
        process = fitting(address)
        os.kill(scheduler.pid, signal.SIGKILL)
        timer = threading.Timer(120, process.kill)
        timer.start()
        _, said = process.communicate()
        timer.cancel()
        assert process.returncode == 1
        assert "ConnectionError" in said
    finally:
        for one in (scheduler, worker):
            if one is not None:
                one.kill()
                one.wait()


def heavy(number):
    """A partition that no worker of 300 MB can hold."""
    X = np.ones((10, 3))
    return X * np.ones(200_000_000)[:1], np.eye(10, 2)


@pytest.mark.slow
def test_workers_without_enough_memory_are_reported(monkeypatch):
    monkeypatch.setattr("maxmargin.dask.cluster.ATTEMPTS", 2)
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(
            n_workers=1, threads_per_worker=1, memory_limit="500MB", dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
        pytest.raises(RuntimeError, match="out of memory"),
    ):
        on_cluster.MultiLabelSVC().fit([dask.delayed(heavy)(k) for k in range(2)], client=client)


N, PARTS = 400, 8


def generated(number):
    """A partition, generated by the worker that needs it."""
    rng = np.random.default_rng(number)
    X = rng.normal(size=(N // PARTS, 30))
    hidden = np.random.default_rng(100).normal(size=(30, 6))
    return X, (X @ hidden + 3 * rng.normal(size=(len(X), 6)) > 0).astype(int)


class Killer(threading.Thread):
    """Kill three workers, one after the other, whenever two are alive."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster, self.kills = cluster, 0

    def run(self):
        while self.kills < 3:
            time.sleep(1.5)
            victims = [nanny.pid for nanny in self.cluster.workers.values()]
            if len(victims) == 2 and all(victims):
                os.kill(victims[self.kills % 2], signal.SIGKILL)
                self.kills += 1


@pytest.mark.slow
@pytest.mark.parametrize("partition", ["rows", "labels"])
def test_killed_workers_do_not_lose_a_fit(partition):
    X, Y = (np.vstack(blocks) for blocks in zip(*(generated(k) for k in range(PARTS)), strict=True))
    best = maxmargin.MultiLabelSVC(tol=1e-7).fit(X, Y)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        killer = Killer(cluster)
        killer.start()
        while killer.is_alive():
            model = on_cluster.MultiLabelSVC(partition=partition, working_rows=300, tol=1e-7, random_state=0)
            model.fit([dask.delayed(generated)(k) for k in range(PARTS)], client=client)
            assert model.duality_gap_ <= 1e-7
            assert model.primal_objective_ == pytest.approx(best.primal_objective_, rel=1e-6)
        killer.join()
    assert killer.kills == 3
