"""Races of the linear MultiLabelSVC.

rcv1    equal certified gap 1e-3 and 1e-4, one and two threads, with a prior, and on the first 3,000 rows
threads one and two threads on RCV1 in turns, fifteen times, and two independent fits at once
sets    bibtex, delicious, tmc2007-500, mediamill-reduced, yeast
squared enron, tmc2007-500 and corel5k, raw, squared hinge loss, C = 1 and 100
full    the full shape of RCV1, generated; growth with samples, words and labels
stages  CPU seconds of the stages of a fit on RCV1, and the share of the primal in its gap

All solutions are measured by one objective: the gap is the primal value minus the best known dual value. A
peer runs at the loosest of its tolerances that reaches the gap. Seconds are medians of three runs in turns,
each in its own process, without compilation. Results: multilabel_<race>.csv and multilabel_growth.png.

`benchmarks/tried/multilabel.md` lists what was tried.
"""

from __future__ import annotations

import cProfile
import multiprocessing as mp
import pstats
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import normalize

from benchmarks.peers import libmultilabel, linearsvc, nothing, ours
from benchmarks.race import (
    Competitor,
    Panel,
    Row,
    Setting,
    lines,
    loosest,
    machine,
    plot,
    race,
    run_alone,
    save,
)
from maxmargin import MultiLabelSVC, datasets, priors

PEER_TOLERANCES = (1.0, 0.3, 0.1, 0.05, 0.03, 0.02, 0.01, 0.005, 0.002, 0.001, 1e-4)
REPEATS = 3
SETS = ("yeast", "mediamill-reduced", "bibtex", "tmc2007-500", "delicious")
SQUARED = ("enron", "tmc2007-500", "corel5k")
Fit = Callable[..., tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Problem:
    """Features, 0/1 labels (dense int8), the objective's C, and whether losses are squared."""

    name: str
    X: Any
    Y: np.ndarray
    C: float = 1.0
    squared: bool = False

    def primal(self, W: np.ndarray, b: np.ndarray) -> float:
        """Sum over labels of LinearSVC's objective (intercept scaling one), in float64."""
        total = 0.5 * float(np.sum(np.square(W, dtype=np.float64)) + np.sum(np.square(b, dtype=np.float64)))
        for start in range(0, self.X.shape[0], 20_000):
            rows = slice(start, start + 20_000)
            scores = self.X[rows] @ W.T.astype(np.float64) + b
            signs = np.where(self.Y[rows] > 0, 1.0, -1.0)
            losses = np.maximum(0, 1 - signs * scores)
            total += self.C * float((losses**2 if self.squared else losses).sum())
        return total

    def part(self, n: int) -> Problem:
        """The first n samples, without the labels that are constant there."""
        on = self.Y[:n].sum(axis=0)
        return replace(self, X=self.X[:n], Y=self.Y[:n, (on > 0) & (on < n)])

    def best_dual(self, prior: np.ndarray | None = None) -> float:
        """Return a dual value within 1e-5 of the optimum, from a long run of our estimator."""
        options = {"loss": "squared_hinge"} if self.squared else {"prior": prior}
        model = MultiLabelSVC(C=self.C, tol=1e-5, n_jobs=-1, random_state=1, max_iter=3000, **options)
        return model.fit(self.X, self.Y).dual_objective_


def real(name: str, unit: bool = True) -> Problem:
    """A data set by name; rows of length one, or as they are."""
    data = datasets.load(name, split="all" if name == "rcv1-subsets" else "train")
    Y = data.Y.toarray() if sp.issparse(data.Y) else np.asarray(data.Y)
    X = data.X.tocsr() if sp.issparse(data.X) else np.ascontiguousarray(data.X)
    keep = (Y.sum(axis=0) > 0) & (Y.sum(axis=0) < len(Y))
    X = X.astype(np.float64)
    return Problem(name, normalize(X) if unit else X, Y[:, keep].astype(np.int8))


def generated(n: int, d: int = 47_236, nnz: int = 75, labels: int = 103, seed: int = 0) -> Problem:
    """Text-like data: Zipf words, labels from sparse linear rules with noise, float32 rows of length one."""
    rng = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, d + 1) ** 0.9
    cumulative = np.cumsum(weights / weights.sum())
    columns = np.searchsorted(cumulative, rng.random((n, nnz))).astype(np.int32)
    np.clip(columns, 0, d - 1, out=columns)
    columns.sort(axis=1)
    values = rng.random((n, nnz), dtype=np.float32) + np.float32(0.5)
    values *= np.log1p(columns).astype(np.float32)  # rare words weigh more
    X = sp.csr_matrix((values.ravel(), columns.ravel(), np.arange(0, n * nnz + 1, nnz)), shape=(n, d))
    X.sum_duplicates()
    normalize(X, copy=False)
    rules = rng.standard_normal((d, labels)).astype(np.float32)
    share = 0.3 / np.arange(1, labels + 1) ** 0.8  # from frequent labels to rare ones
    Y = np.empty((n, labels), np.int8)
    for start in range(0, n, 20_000):
        rows = slice(start, start + 20_000)
        scores = X[rows] @ rules
        scores += 0.3 * rng.standard_normal(scores.shape).astype(np.float32)
        if start == 0:
            thresholds = np.array([np.quantile(scores[:, l], 1 - share[l]) for l in range(labels)])
        Y[rows] = scores > thresholds
    return Problem(f"generated-{n}", X, Y)


def toy() -> Problem:
    """Generate a problem that is not tiny, because tiny ones are solved far below the requested gap."""
    return generated(400, d=500, nnz=10, labels=8).part(400)


@dataclass(frozen=True)
class Entry:
    """A name, a way to fit, the tolerances to try (none: the gap itself), and a cheaper way to warm up."""

    name: str
    fit: Fit
    tolerances: Sequence[float] = ()
    warm: Fit | None = None
    needs: tuple[str, ...] = ()
    cores: int = 1

    def competitor(self, problem: Problem, dual: float, tol: float) -> Competitor:
        """Answers with the gap that was reached."""

        def gap(weights: tuple[np.ndarray, np.ndarray]) -> float:
            primal = problem.primal(*weights)
            return (primal - dual) / primal

        return Competitor(
            self.name,
            partial(self.fit, problem, tol),
            partial(self.warm or self.fit, problem.part(100), tol),
            judge=gap,
            needs=self.needs,
            cores=self.cores,
        )


def own(name: str = "MultiLabelSVC", cores: int = 1, **options: Any) -> Entry:
    fit = partial(ours.multilabel_weights, **options)
    return Entry(name, fit, warm=partial(fit, precision="single", max_iter=3), cores=cores)


LINEAR_SVC = Entry("LinearSVC one-vs-rest", linearsvc.multilabel_weights, PEER_TOLERANCES)
LIBMULTILABEL = Entry(
    "LibMultiLabel one-vs-rest",
    libmultilabel.multilabel_weights,
    PEER_TOLERANCES,
    needs=libmultilabel.NEEDS,
)
NOTHING = Entry("nothing", nothing.multilabel_weights, (0.0,))


def to_gap(
    problem: Problem, entries: Sequence[Entry], gap: float, dual: float, setting: Setting
) -> list[Row]:
    """Run every competitor at the loosest setting that reaches the gap; the first entry is ours."""
    chosen: dict[str, float] = {}
    entrants = []
    for entry in entries:
        make = partial(entry.competitor, problem, dual)
        found = loosest(make, entry.tolerances or (gap,), lambda reached: reached <= gap)
        if found is not None:
            chosen[entry.name] = found[0]
            entrants.append(make(found[0]))
    results = race(entrants, setting.times(REPEATS))
    first = results[entries[0].name].seconds
    return [
        {
            "problem": problem.name,
            "target_gap": gap,
            "competitor": each.name,
            "cores": each.cores,
            "seconds": round(results[each.name].seconds, 4),
            "times_ours": round(results[each.name].seconds / first, 2),
            "gap": f"{results[each.name].answer:.3g}",
            "tol": chosen[each.name],
            "peak_mib": round(results[each.name].peak_mib),
            "first_call_seconds": round(results[each.name].first_call, 3),
        }
        for each in entrants
    ]


def rcv1(setting: Setting) -> None:
    problem = toy() if setting.small else real("rcv1-subsets")
    cut = replace(problem.part(3000), name=f"{problem.name}-3000")
    dual, cut_dual = problem.best_dual(), cut.best_dual()
    single = own("MultiLabelSVC, float32 X", dtype=np.float32)
    two = own("MultiLabelSVC, two threads", cores=2, n_jobs=2)
    rows: list[Row] = []
    for gap in (1e-3, 1e-4):
        rows += to_gap(problem, [own(), two, single, LINEAR_SVC, LIBMULTILABEL, NOTHING], gap, dual, setting)
        rows += to_gap(cut, [own(), LINEAR_SVC], gap, cut_dual, setting)
    save(setting, "multilabel_rcv1", [*rows, with_prior(problem, rows[0]["seconds"], setting)])


def threads(setting: Setting) -> None:
    """Measure the speed-up of two threads.

    For comparison, measure how much faster two fits with one thread each run at once, in two processes,
    than one after the other: the value of the second core of the machine.
    """
    problem = toy() if setting.small else real("rcv1-subsets")
    rows = []
    for gap in (1e-3, 1e-4):
        turns = run_alone(Competitor("in turns", partial(in_turns, problem, gap, setting.times(15)), cores=2))
        seconds, gaps = (np.median(figures, axis=0) for figures in np.moveaxis(turns.answer, 2, 0))
        one, two, at_once = seconds.tolist()
        rows.append(
            {
                "problem": problem.name,
                "target_gap": gap,
                "one_seconds": round(one, 4),
                "two_seconds": round(two, 4),
                "times_faster": round(one / two, 2),
                "two_fits_at_once": round(2 * one / at_once, 2),
                "gap": f"{gaps.max():.3g}",
                "turns": len(turns.answer),
                "machine": machine(own=2),
            }
        )
    save(setting, "multilabel_threads", rows)


def in_turns(problem: Problem, tol: float, n_turns: int) -> np.ndarray:
    """Measure seconds and gap of a fit with one thread, with two, and with one beside another such fit.

    They take turns, and the first turn is not counted. The other fit runs in another process; the time ends
    when both have finished.
    """
    found = np.empty((1 + n_turns, 3, 2))

    def fit(n_jobs: int) -> float:
        model = MultiLabelSVC(C=problem.C, tol=tol, random_state=0, n_jobs=n_jobs)
        return model.fit(problem.X, problem.Y).duality_gap_

    def keep_pace() -> None:
        for _ in range(1 + n_turns):
            together.wait()
            fit(1)
            together.wait()

    context = mp.get_context("fork")
    together = context.Barrier(2, timeout=600)  # seconds
    other = context.Process(target=keep_pace, daemon=True)
    other.start()
    for turn, (kind, n_jobs) in product(range(1 + n_turns), enumerate((1, 2, 1))):
        at_once = kind == 2
        if at_once:
            together.wait()
        started = time.perf_counter()
        gap = fit(n_jobs)
        if at_once:
            together.wait()
        found[turn, kind] = time.perf_counter() - started, gap
    other.join()
    return found[1:]


def with_prior(problem: Problem, plain: float, setting: Setting) -> Row:
    """Run to 1e-3 with a dense prior on the labels, beside the seconds without it."""
    R, few = priors.from_labels(problem.Y), problem.part(100)
    dual = problem.best_dual(R)
    competitor = Competitor(
        "MultiLabelSVC, dense prior",
        lambda: MultiLabelSVC(prior=R, random_state=0).fit(problem.X, problem.Y).primal_objective_,
        lambda: MultiLabelSVC(prior=priors.from_labels, precision="single", max_iter=2).fit(few.X, few.Y),
        judge=lambda primal: (primal - dual) / primal,
    )
    result = race([competitor], setting.times(REPEATS))[competitor.name]
    return {
        "problem": problem.name,
        "target_gap": 1e-3,
        "competitor": competitor.name,
        "cores": 1,
        "seconds": round(result.seconds, 4),
        "times_ours": round(result.seconds / plain, 2),
        "gap": f"{max(run.answer for run in result.runs):.3g}",
        "tol": 1e-3,
        "peak_mib": round(result.peak_mib),
    }


def sets(setting: Setting) -> None:
    rows: list[Row] = []
    for problem in [toy()] if setting.small else map(real, SETS):
        rows += to_gap(problem, [own(), LINEAR_SVC], 1e-3, problem.best_dual(), setting)
    save(setting, "multilabel_sets", rows)


def squared(setting: Setting) -> None:
    """Run the squared hinge loss; with a large C, all methods that pass over samples are slow."""
    rows: list[Row] = []
    for problem in [toy()] if setting.small else [real(name, unit=False) for name in SQUARED]:
        for C in (1.0, 100.0):
            posed = replace(problem, name=f"{problem.name}, squared hinge, C = {C:g}", C=C, squared=True)
            rows += to_gap(posed, [own(), LINEAR_SVC], 1e-3, posed.best_dual(), setting)
    save(setting, "multilabel_squared", rows)


def full(setting: Setting) -> None:
    """Run the full shape of RCV1, and the growth with samples, words and labels."""
    unit, usual = (300, {"nnz": 10, "labels": 8}) if setting.small else (50_000, {"nnz": 75, "labels": 103})
    shapes = [{"n": unit * k} for k in (1, 2, 4)]
    shapes += [{"n": unit, "nnz": nnz} for nnz in ((20,) if setting.small else (38, 150))]
    shapes += [{"n": unit, "labels": labels} for labels in ((10,) if setting.small else (26, 52, 206))]
    shapes += [] if setting.small else [{"n": 781_265}]
    rows: list[Row] = []
    for shape in ({**usual, **shape} for shape in shapes):
        problem = generated(**shape)
        few = problem.part(100)
        competitor = Competitor(
            f"{shape}",
            lambda p=problem: MultiLabelSVC(n_jobs=2, random_state=0).fit(p.X, p.Y).history_[-1],
            lambda p=few: MultiLabelSVC(random_state=0, max_iter=2).fit(p.X, p.Y),
            cores=2,
        )
        run = race([competitor], 1)[competitor.name].runs[0]
        rows.append(
            {
                "n": shape["n"],
                "nnz": shape["nnz"],
                "labels": shape["labels"],
                "cores": 2,
                "seconds": round(run.seconds, 3),
                "gap": f"{run.answer['gap']:.3g}",
                "epochs": run.answer["epoch"],
                "peak_mib": round(run.peak_mib),
                "process_mib": round(run.process_mib),
            }
        )
    save(setting, "multilabel_full", rows)
    plot(setting, "multilabel_growth", [[growth(rows, *axis) for axis in AXES.items()]])


AXES = {"n": "samples", "nnz": "words per sample", "labels": "labels"}


def growth(rows: list[Row], key: str, title: str) -> Panel:
    """Plot seconds against one of the sizes, with linear growth as a dotted line."""
    base = rows[0]
    fixed = {other: base[other] for other in AXES if other != key}
    x, y = next(iter(lines(rows, key, "seconds", "cores", **fixed).values()))
    straight = [base["seconds"] * size / base[key] for size in x]
    return Panel(title, "seconds", {"MultiLabelSVC": (x, y), "linear": (x, straight)})


STAGES = {
    "sweeping": "sweep_labels",
    "polishing": "label_passes",
    "measuring": "measure",
    "summing": "accumulate",
}


def stages(setting: Setting) -> None:
    """CPU seconds of one thread by compiled loop, the middle one of three fits.

    `measuring` are the scores of all entries after every epoch and for the certificate, `summing` the weights
    of the certificate. `primal_part` is the part of the last gap by which the primal value is too high.
    """
    problem = toy() if setting.small else real("rcv1-subsets")
    dual = problem.best_dual()
    rows = []
    for gap in (1e-3, 1e-4):
        MultiLabelSVC(tol=gap, random_state=0).fit(problem.X, problem.Y)
        fits = [staged(problem, gap) for _ in range(setting.times(REPEATS))]
        taken, model = sorted(fits, key=lambda fit: fit[0]["cpu_seconds"])[len(fits) // 2]
        above = model.primal_objective_ - dual
        rows.append(
            {
                "problem": problem.name,
                "target_gap": gap,
                **{name: round(seconds, 4) for name, seconds in taken.items()},
                "epochs": model.n_iter_,
                "gap": f"{model.duality_gap_:.3g}",
                "primal_part": round(above / (model.primal_objective_ - model.dual_objective_), 2),
                "machine": machine(own=1),
            }
        )
    save(setting, "multilabel_stages", rows)


def staged(problem: Problem, gap: float) -> tuple[dict[str, float], MultiLabelSVC]:
    """A fit, with the seconds of its loops."""
    profile = cProfile.Profile(time.process_time)
    model = profile.runcall(MultiLabelSVC(tol=gap, random_state=0).fit, problem.X, problem.Y)
    stats = pstats.Stats(profile)
    own: dict[str, float] = {}
    for (file, _, name), (_, _, seconds, *_) in stats.stats.items():  # type: ignore[attr-defined]
        if file.endswith("loops.py"):
            own[name] = own.get(name, 0.0) + seconds
    taken = {stage: own.get(loop, 0.0) for stage, loop in STAGES.items()}
    total = float(stats.total_tt)  # type: ignore[attr-defined]
    return {"cpu_seconds": total, **taken, "rest": total - sum(taken.values())}, model


RACES = {"rcv1": rcv1, "threads": threads, "sets": sets, "squared": squared, "full": full, "stages": stages}
