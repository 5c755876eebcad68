"""`maxmargin warmup`: have the machine code of every loop on disk before the first fit.

Families are shared out to processes, each of which fits a few rows in every configuration that has loops
of its own. What the package brought along, or an earlier warm-up left, is found and takes no time.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from typing import Any

import click

from maxmargin._names import ESTIMATORS
from maxmargin.cli.console import progress_bar
from maxmargin.cli.families import FAMILIES, build
from maxmargin.cli.options import Command

# What can be warmed up: the families, and bags of candidates, for which there is no file format.
WARMED = {family.name: (family.estimator, family.task) for family in FAMILIES.values()} | {
    "latent": ("LatentSVC", "bags")
}
# So that the last process to end does not begin last.
SLOW = ["multiclass", "multilabel", "submodular", "chain", "ranking", "latent"]
SLOWEST_FIRST = sorted(WARMED, key=[*SLOW, *WARMED].index)
# Parameters that choose between compiled loops; every combination that an estimator takes is fitted.
CHOICES = ("solver", "loss", "update", "regulariser", "selection", "inference")
# What else does, where not all values matter: all kernels that are not linear share their loops.
FURTHER = {"kernel": ("linear", "rbf"), "prior": (None, "labels"), "precision": ("auto", "single", "double")}
# Parameters with loops of their own, whatever the others are; those of ASKED are no part of --defaults.
ALONE: dict[str, tuple[dict[str, Any], ...]] = {
    "LabelRanker": ({"weighting": "idf"},),
    # Default fits come to it where block steps stall.
    "SubmodularSVC": ({"solver": "interior"},),
}
ASKED: dict[str, tuple[dict[str, Any], ...]] = {
    "MultiLabelSVC": (
        {"memory_limit": 0},
        # Chunks of labels for one step come in at a gap that depends on `tol`.
        {"solver": "dca", "prior": "labels"},
        # Kernel values that do not fit in memory.
        {"kernel": "rbf", "cache_size": 0},
        {"kernel": "rbf", "cache_size": 0, "prior": "labels"},
        {"kernel": "rbf", "cache_size": 0, "solver": "smo"},
    ),
    "MultiClassSVC": ({"kernel": "rbf", "cache_size": 0},),
}
# What a model is asked besides its predictions; nobody asks for the RARE ones in the demo.
USUAL = ("decision_function", "predict_top")
RARE = ("predict_marginals", "predict_kbest", "certify_inference")
WIDTHS = ("float64", "float32")
# Enough epochs, and no end before: some loops come in only when the first ones slow down.
LONG = {"max_iter": 70, "tol": 1e-10, "max_basis": 5}
SHORT = {"max_iter": 15, "max_basis": 5}
# Rows of many classes that are told apart, where most margins are kept.
APART = {"C": 1e4, "max_basis": 12, "max_iter": 3, "random_state": 0}
# Machines without such loops, which would be after the last digits of their gap for minutes.
EARLY = {"max_basis": 5, "tol": 0.1}
# Share of zeros in dense rows of which some loops read the nonzeros alone.
MOSTLY_ZEROS = 0.9
# Rows, classes and features of the fits.
Size = tuple[int, int, int]
# Few classes have loops of their own, as has what is too wide for all of Newton's methods.
WIDE: dict[str, tuple[Size, ...]] = {"MultiLabelSVC": ((24, 3, 600),), "SubmodularSVC": ((24, 3, 700),)}
FEW: dict[str, tuple[Size, ...]] = {
    "multilabel": ((24, 3, 5),),
    "multiclass": ((24, 3, 5), (24, 6, 5)),
    "ranking": ((24, 3, 5),),
    "chain": ((24, 3, 5),),
    # Some bags must come to prefer another candidate, for which there is a loop.
    "bags": ((60, 3, 5),),
}
# So many unknowns, or numbers in X, that default parameters choose other loops.
MANY: dict[str, tuple[Size, ...]] = {
    "MultiLabelSVC": ((140, 120, 600),),
    "MultiClassSVC": ((140, 70, 12), (900, 2, 59)),
    "SparseMultiClassSVC": ((140, 70, 12),),
}
# Margins of which few are violated have loops of their own.
KEPT: dict[str, tuple[Size, ...]] = {"SparseMultiClassSVC": ((40, 40, 20),)}


@click.command("warmup", cls=Command, short_help="Compile the inner loops ahead of the first fit.")
@click.argument("families", nargs=-1, type=click.Choice(list(WARMED)), metavar="[FAMILY]...")
@click.option(
    "--defaults", is_flag=True, help="Only the loops of default parameters, and of kernels, on float64."
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=os.cpu_count() or 1,
    show_default="one per core",
    help="How many processes compile.",
)
def warmup_command(families: Sequence[str], defaults: bool, jobs: int) -> None:
    """Compile the inner loops of the given families (all by default) and keep them on disk.

    The first fit of an estimator then starts at once, whatever its solver. Needed at most once per
    machine and version, and not at all where the package came with machine code for this processor.
    """
    chosen = [name for name in SLOWEST_FIRST if name in (families or WARMED)]
    start = time.perf_counter()
    with progress_bar() as bar:
        line = bar.add_task("compiling", total=len(chosen))
        if jobs == 1 or len(chosen) == 1:
            for name in chosen:
                warm(name, defaults)
                bar.update(line, advance=1, description=name)
        else:
            with ProcessPoolExecutor(min(jobs, len(chosen)), fresh_processes()) as pool:
                tasks = {pool.submit(warm, name, defaults): name for name in chosen}
                for task in as_completed(tasks):
                    task.result()
                    bar.update(line, advance=1, description=tasks[task])
    print(f"Ready: {', '.join(chosen)} ({time.perf_counter() - start:.1f} s).")


def fresh_processes() -> Any:
    """How processes start that know nothing of this one, whose locks may be held.

    They are copies of one that has only imported the estimators, where there are such copies: what is
    imported for the first time is read and turned into bytecode once, not by every process.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(sorted({ESTIMATORS[estimator] for estimator, _ in WARMED.values()}))
    return server


def warm(name: str, defaults: bool = False) -> None:
    """Fit a few rows in the configurations of one family."""
    estimator, task = WARMED[name]
    widths = WIDTHS[:1] if defaults else WIDTHS
    # The precision depends on `tol`, which keeps its default for default fits.
    settings = SHORT if defaults else EARLY if name.startswith("sparse") else LONG
    few, all_sizes = FEW[task], FEW[task] + WIDE.get(estimator, ())
    for params in ordinary(estimator) if defaults else variants(estimator):
        sizes = all_sizes if params.get("solver", "auto") == "auto" else few
        fit_a_little(estimator, task, params, sizes, widths, settings, not defaults)
    for params in ALONE.get(estimator, ()) + (() if defaults else ASKED.get(estimator, ())):
        fit_a_little(estimator, task, params, all_sizes, widths, SHORT, not defaults)
    fit_a_little(estimator, task, {}, MANY.get(estimator, ()), widths, SHORT, not defaults)
    fit_a_little(estimator, task, {}, KEPT.get(estimator, ()), widths, APART, not defaults)
    if estimator == "MultiLabelSVC":
        number_columns()
        sweep_in_batches(WIDTHS[-1:] if defaults else WIDTHS)
        if not defaults:
            fit_short_rows()
        if not defaults and find_spec("distributed"):
            fit_from_files()


def number_columns() -> None:
    """Number the columns of a sparse row by how often they occur, as is done where they are many."""
    import scipy.sparse as sp

    from maxmargin.core.rows import Rows
    from maxmargin.multilabel.problem import frequent_first

    frequent_first(Rows.of(sp.csr_array(([1.0], ([0], [2])), shape=(1, 9))))


def sweep_in_batches(widths: Sequence[str]) -> None:
    """Sweep a few samples with a kernel as it is done with many, in the given working precisions."""
    import numpy as np

    from maxmargin.core.kernel_matrix import KernelMatrix
    from maxmargin.core.kernels import Kernel
    from maxmargin.core.loop import Clock
    from maxmargin.multilabel.pairs import PairDescent, PairRule
    from maxmargin.multilabel.problem import KernelM3L, hamming_costs

    for X, y, _ in _few_rows("multilabel", *FEW["multilabel"][0], WIDTHS[:1], False):
        costs = hamming_costs(np.where(y, 1, -1).astype(np.int8), np.ones((2, 3)), np.ones((len(y), 1)))
        for width in widths:
            K = KernelMatrix(Kernel.of(X, "rbf", offset=1.0), X, dtype=width)
            start, rule = np.zeros(costs.signs.shape), PairRule(batch=16, batch_speed=np.inf)
            rng = np.random.RandomState(0)
            PairDescent(KernelM3L(K, costs), start, tol=0.1, rng=rng, rule=rule).epoch(Clock())


def fit_short_rows() -> None:
    """Fit the squared hinge loss on sparse rows that are not filled up."""
    import scipy.sparse as sp

    *_, (X, y, _) = _few_rows("multilabel", *FEW["multilabel"][0], WIDTHS[:1], True)
    build("MultiLabelSVC", loss="squared_hinge").fit(sp.csr_array(X), y)


def fit_from_files() -> None:
    """Fit rows that are mapped from files, of which there are copies, in both precisions."""
    from dask import delayed

    from maxmargin.dask import MultiLabelSVC, store

    for size, precision in itertools.product(WIDE["MultiLabelSVC"], ("single", "double")):
        for X, y, _ in _few_rows("multilabel", *size, WIDTHS, False):
            with TemporaryDirectory() as folder, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = MultiLabelSVC(precision=precision, working_rows=len(y) // 2, max_iter=2)
                model.fit(store([delayed((X, y))], folder), client="here")


def ordinary(estimator: str) -> list[dict[str, Any]]:
    """Default parameters, with every kind of kernel."""
    known = build(estimator).get_params()
    return [{"kernel": kernel} for kernel in FURTHER["kernel"]] if known.get("kernel") == "linear" else [{}]


def options(estimator: str, parameter: str) -> list[str]:
    """The words that a parameter of an estimator takes, read from its constraint; empty without it."""
    import maxmargin

    constraints = getattr(maxmargin, estimator)._parameter_constraints.get(parameter, ())
    return sorted({word for each in constraints for word in getattr(each, "options", ())})


def solver_names(estimator: str) -> list[str]:
    """The solvers that an estimator can be asked for."""
    return options(estimator, "solver")


def variants(estimator: str) -> Iterator[dict[str, Any]]:
    """All combinations of the parameters that choose between loops."""
    known = build(estimator).get_params()
    axes: dict[str, Sequence[Any]] = {name: options(estimator, name) for name in CHOICES if name in known}
    axes |= {name: values for name, values in FURTHER.items() if name in known}
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def fit_a_little(
    estimator: str,
    task: str,
    params: dict[str, Any],
    sizes: Sequence[Size],
    widths: Sequence[str] = WIDTHS,
    settings: dict[str, Any] = LONG,
    rare: bool = True,
) -> bool:
    """Fit and predict a few rows of the given sizes, dense and CSR, of the given widths.

    With `rare` also dense rows that are mostly zeros, and every question that a model answers. False where
    the estimator refuses the combination: there is no loop for it.
    """
    model = build(estimator, **params)
    known = model.get_params()
    model.set_params(**{name: value for name, value in settings.items() if name in known})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for size in sizes:
                for X, y, cut in _few_rows(task, *size, widths, rare):
                    model.fit(X, y, **cut).predict(X, **cut)
                    for answer in USUAL + (RARE if rare else ()):
                        if hasattr(model, answer):
                            further = {"predict_top": (1,), "certify_inference": (y,)}.get(answer, ())
                            getattr(model, answer)(X, *further, **cut)
        except ValueError as refusal:
            if not any(key in str(refusal) for key in params):
                raise
            return False
    return True


def _few_rows(
    task: str, n: int, n_classes: int, n_features: int, widths: Sequence[str], rare: bool
) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    """Rows in every kind, labels for the task, and the cut into sequences or bags of three rows."""
    import numpy as np
    import scipy.sparse as sp

    codes, eye = np.arange(n) % n_classes, np.eye(n_classes, dtype=int)
    y = {"multilabel": eye[codes] | eye[codes[::-1]], "bags": codes[: n // 3]}.get(task, codes)
    cut = {"lengths": np.full(n // 3, 3)} if task in ("chain", "bags") else {}
    X = np.random.default_rng(0).random((n, n_features))
    for kind in widths:
        yield X.astype(kind), y, cut
        yield sp.csr_array(X.astype(kind)), y, cut
        if rare:
            yield np.where(X < MOSTLY_ZEROS, 0, X).astype(kind), y, cut
