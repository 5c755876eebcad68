"""Workers killed in the middle of a fit do not lose it."""

import os
import signal
import threading
import time

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster

import maxmargin
from maxmargin.dask import MultiLabelSVC

N, PARTS = 400, 8


def rows(number):
    """A partition, made anew wherever it is asked for."""
    rng = np.random.default_rng(number)
    X = rng.normal(size=(N // PARTS, 30))
    hidden = np.random.default_rng(100).normal(size=(30, 6))
    return X, (X @ hidden + 3 * rng.normal(size=(len(X), 6)) > 0).astype(int)


class Killer(threading.Thread):
    """Kills three workers, one after the other, whenever there are two of them."""

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
    X, Y = (np.vstack(blocks) for blocks in zip(*(rows(k) for k in range(PARTS)), strict=True))
    best = maxmargin.MultiLabelSVC(tol=1e-7).fit(X, Y)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        killer = Killer(cluster)
        killer.start()
        while killer.is_alive():
            model = MultiLabelSVC(partition=partition, working_rows=300, tol=1e-7, random_state=0)
            model.fit([dask.delayed(rows)(k) for k in range(PARTS)], client=client)
            assert model.duality_gap_ <= 1e-7
            assert model.primal_objective_ == pytest.approx(best.primal_objective_, rel=1e-6)
        killer.join()
    assert killer.kills == 3
