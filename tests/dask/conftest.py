"""Clients and data for the tests of models on a cluster."""

from itertools import pairwise

import dask
import pytest
from distributed import Client

from maxmargin.dask import local_cluster


class Inline:
    """A client with two simulated workers that runs all tasks at once in this process."""

    status = "running"

    def wait_for_workers(self, n, timeout):
        return None

    def scheduler_info(self, n_workers):
        return {"workers": {"first": {"memory_limit": 2**30}, "second": {"memory_limit": 0}}}

    def scatter(self, values, hash):
        return values

    def compute(self, values):
        return dask.compute(*values, scheduler="sync")

    def submit(self, task, *arguments, pure):
        return task(*arguments)

    def gather(self, answers):
        return answers


@pytest.fixture
def client():
    return Inline()


@pytest.fixture(scope="package")
def processes():
    with local_cluster(2) as cluster, Client(cluster) as client:
        yield client


# 1, 2, 3 and 7 partitions of 70 rows, one of them empty, one of a single row.
CUTS = {1: [], 2: [30], 3: [20, 20], 7: [1, 10, 20, 40, 40, 60]}


def delayed_parts(X, Y, n_parts):
    """Rows and labels in delayed partitions."""
    parts = [slice(a, b) for a, b in pairwise([0, *CUTS[n_parts], len(Y)])]
    return [dask.delayed(X[rows]) for rows in parts], [dask.delayed(Y[rows]) for rows in parts]
