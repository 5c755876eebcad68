"""Race of kernel multi-label learning: Animals with Attributes, RBF, 85 attributes.

race      2,000 and 5,000 images, all peers
prior     1,000 and 2,000 images with a prior of rank ten, both solvers
growth    time against images and labels
all       24,295 images: time and peak memory, one thread and two

Every measurement is a fresh process with one BLAS thread, so that its peak memory is its own; the
processes of the competitors alternate. Seconds are those of a fit after a first fit on 100 images, which
compiles and is reported apart ("first_seconds"). C = 1 and gamma="scale" for all. `gap` is the relative
duality gap (P - D) / P summed over labels, recomputed here in float64 from the coefficients that the
competitor returned; ours stop at a certified 1e-3. SVC is run with its default tol (1e-3) and with tol=0.02,
which brings it near the same gap. Results: kernel_multilabel.csv (median of the repeats; a competitor whose
first fit takes over a minute is not repeated) and kernel_multilabel_growth.png.

Where the time of all 24,295 images goes, and what did not help (one core, 68 CPU seconds, indicative):

- Pair steps take 36 seconds, the certificate 12 (kernel values computed anew in float64), four epochs of
  block sweeps 10, the kernel matrix 9.5, most of it for memory that is touched for the first time.
- An epoch of sweeps is one product at 60 of the core's 80 Gflop/s. Taking the product off the residuals in
  place by BLAS took as long.
- Sweeps down to a gap of 2e-3 before pair steps, eight over each block: 64 seconds instead of 68; on 8,000
  images 5.6 instead of 7.6, on digits and yeast up to twice as long.
- Not built: a bias of its own in sweeps over all samples, as the linear solver has it. On 8,000 images the
  gap is then at 1e-3 after 13 epochs instead of 17 (11 with other blocks and sweeps), and blocks of 128 and
  256 lose nothing, as they do now; the model would have to keep an intercept that its dual variables do not
  make. With random batches it is 9 epochs instead of 11 on 12,000 images.
- A bias that follows the block sweeps with delay and is made good when they end, so that dual variables make
  it again: on 3,000 images 16 epochs instead of 18 at half its pull, 19 to 26 at less; no gain in time.
- Sweeps now go on while the last one lowered the gap for less than pair steps would, which take about a
  fifth of a step for each free coefficient to lower it to 1 / e, at the speeds that `PairRule` counts with:
  46.8 CPU seconds instead of 53.1 (7 sweeps of 1.9 and pair steps of 18 seconds instead of 4 and 27), 10.7
  to 11 instead of 14 on 12,000 images. Yeast, digits, emotions, cal500, mediamill and enron
  take as long as before.
- A primal objective, not the dual, is what sweeps wait for: on 6,000 images D is 1e-3 short after 6 epochs,
  and P 1e-2 above. The best bias for P takes a quarter to a third off, the best linear combination of the
  last five epochs for every label no more than their mean.
- Corrections by a kernel of low rank (500 of 6,000, blocks of similar images exact, three passes, then one
  product with K and a line search): an epoch of 1.6 times the time of a sweep, and from the third on a
  smaller fall of the gap. The spectrum is flat after its first 250 values.
- Pair steps wait for rows of K from memory for half of their time; violations and gains that stay in the
  nearest cache, with their largest found on the way, are no faster.
- Block sweeps now carry their changes by a product of their own (`kernel_loops.carry`): no copy of the rows,
  residuals in registers; 78 to 83 Gflop/s where rows copied and multiplied by BLAS had 46. With two threads:
  9 sweeps of 1.7 CPU seconds, pair steps 11, certificate 7.8, kernel matrix 3.7, all of them in threads;
  before, 7 of 1.9, 16.7 (these in threads), 7.0 and 3.7. The certificate runs at the core's speed in float64.
- Sweeps now take random batches of 1,024 samples, each swept four times within its own kernel, block by
  block, before one product for all samples, where that product is what costs (9,300 images; with 26 labels
  15,000 letters, as batches of 12,000 letters, 10,000 texts and 9,000 digits took up to a fifth longer): 8
  epochs on 8,192 and 12,000 images and 10 on all, without pair steps, where sweeps over all samples need 15
  on 8,000 and 18 on all. Batches of 64 runs of 16 neighbours need as many epochs as those of 1,024 single
  samples, and are gathered by cache lines; in blocks of 64 such runs cost a third more epochs. On 12,000
  images two, three and six passes, batches of 512 and 2,048 take as long (10, 9, 8, 10 and 8 epochs). The
  same batches in every epoch do not converge in 40. Steps longer than the best (1.2 to 1.4 times) save no
  epoch.
- Products go through the coefficients that changed alone: 0.7 of them in the first epoch, 0.3 in the last
  ones, 3.1 products' worth in 8 epochs. On one core a product takes 0.36 seconds (all images; the kernel
  matrix from memory) and 1.2 more for the part that changed. Rows of K are copied to cache lines; without,
  and without asking for residuals in time, it takes up to a half longer.
- Steps that would gain no more than 0.003 of an equal share of their label's gap are left out: two fifths
  fewer steps. With 0.01 sweeps over all samples change a tenth in their last epochs instead of a third, and
  need 16 epochs instead of 15 on 8,000 images; within batches, leaving out small changes before the product
  takes 14 epochs instead of 8. Chosen on 6,000, 8,000 and 12,000 images.
- Steps within a block now move 48 labels side by side: passes within batches take half the time that they
  took with one label after the other.
- All images with two threads, old and new in turns on a busy machine: 26.9 CPU seconds instead of 40.6 (10
  sweeps of 1.5 instead of 9 of 1.8 and pair steps of 11.5; certificate 7.6, kernel matrix 3.7). Alone, on
  memory touched before, 18.0 seconds (28.5 CPU seconds; 9 sweeps, a short visit by pair steps, which cost
  as much as the tenth): sweeps keep three quarters of two cores busy, the certificate 85 %. Another time 15.5
  to 16.2: products by column ranges 4.3 (6.9 CPU), passes within batches 2.9 (4.1), kernels of batches 0.6.
  Four ranges for each thread, so that none waits long for the other, made no difference.
- Threads that are kept between steps, of which a fit has hundreds: 15.4 and 15.9 seconds instead of 18.2.
- Three tenths of the way back to where a sweep began the gap is smaller by a ninth to a seventh from the
  fifth sweep on (0.2, 0.35 and 0.5 of the way: 12, 15 and 11 % after the ninth; the mean of the last three 6
  %), so sweeps end there where that is enough: 13.9 to 14.4 seconds, of which the kernel matrix takes 3.3 to
  3.8 (half of it for memory that is touched for the first time), sweeps 6.1, the certificate 3.4.
- Not built: a bias of its own in these sweeps. The best bias for P lowers the gap by a tenth. Kernel values
  of 16 bits, which would halve what is touched and read from memory.
- Blocks of the most violating samples, of one label or of six, do not converge; with as many that push up
  as down, blocks of 16 read 1.7 times as many rows as pair steps, blocks of 64 at least four times.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.peers import libsvm_official, nothing, ours, svc
from benchmarks.race import Competitor, Panel, Row, Setting, lines, machine, plot, race, save
from maxmargin import datasets, priors

REPEATS = 3
THREADS = {1: "one thread", 2: "two threads"}
TOO_LONG = 60  # seconds after which a competitor is not repeated
KEY = ("images", "labels", "method")


@dataclass(frozen=True)
class Problem:
    """Images, attributes, and a prior on attributes."""

    X: np.ndarray
    Y: np.ndarray
    R: np.ndarray
    C: float = 1.0

    @property
    def gamma(self) -> float:
        """What gamma="scale" stands for."""
        return 1 / (self.X.shape[1] * self.X.var())

    def part(self, n: int) -> Problem:
        return replace(self, X=self.X[:n], Y=self.Y[:n])

    def gap(self, A: np.ndarray, intercept: np.ndarray, offset: float) -> float:
        """Relative gap of signed coefficients A (samples x labels) with kernel rbf + offset."""
        from maxmargin.core.kernel_matrix import KernelMatrix
        from maxmargin.core.kernels import Kernel

        F = KernelMatrix(Kernel.of(self.X, "rbf", offset=offset), self.X, 0, np.float64).times(A)
        signs = 2.0 * self.Y - 1
        norm = 0.5 * np.sum(A * F)
        primal = norm + self.C * np.maximum(0, 1 - signs * (F + intercept)).sum()
        return float((primal - (np.abs(A).sum() - norm)) / primal)


def animals(n_images: int, n_labels: int) -> Problem:
    """Images of the seen classes, and the prior of the ten unseen ones."""
    data = datasets.load("awa1")
    rows = np.random.RandomState(0).permutation(data.train)[:n_images]
    signatures = data.extras["signatures"][data.extras["test_classes"]][:, :n_labels]
    return Problem(data.X[rows], data.Y[rows][:, :n_labels], priors.from_categories(signatures))


def toy(n_images: int, n_labels: int) -> Problem:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_images, 6))
    Y = (X @ rng.normal(size=(6, n_labels)) + rng.normal(size=(n_images, n_labels)) > 0).astype(int)
    return Problem(X, Y, priors.from_labels(Y))


@dataclass(frozen=True)
class Entry:
    """How to fit, and how to read the coefficients of what was fitted; None for a gap that ours certifies."""

    fit: Callable[[Problem], Any]
    coefficients: Callable[[Problem, Any], tuple[np.ndarray, np.ndarray, float]] | None
    needs: tuple[str, ...] = ()
    cores: int = 1

    def warm(self, problem: Problem) -> None:
        self.fit(problem.part(100))

    def judge(self, problem: Problem, model: Any) -> float:
        return (
            model.duality_gap_
            if self.coefficients is None
            else problem.gap(*self.coefficients(problem, model))
        )


ENTRIES = {
    "null": Entry(nothing.fit_kernel, nothing.kernel_coefficients),
    "maxmargin auto": Entry(ours.fit_kernel, ours.kernel_coefficients),
    "maxmargin smo": Entry(partial(ours.fit_kernel, solver="smo"), ours.kernel_coefficients),
    "sklearn SVC": Entry(svc.fit_kernel, svc.kernel_coefficients),
    "sklearn SVC tol=0.02": Entry(partial(svc.fit_kernel, tol=0.02), svc.kernel_coefficients),
    "sklearn SVC shared kernel": Entry(partial(svc.fit_kernel, shared=True), svc.kernel_coefficients),
    "libsvm-official": Entry(
        libsvm_official.fit_kernel, libsvm_official.kernel_coefficients, libsvm_official.NEEDS
    ),
}
TIED = {
    "maxmargin auto, prior": Entry(partial(ours.fit_kernel, tied=True), None),
    "maxmargin smo, prior": Entry(partial(ours.fit_kernel, solver="smo", tied=True), None),
}


def at_sizes(
    entries: dict[str, Entry], sizes: Sequence[tuple[int, int]], repeats: int, setting: Setting
) -> list[Row]:
    """Medians of all entries at each size, written beside what is in the file already."""
    rows: list[Row] = []
    for n_images, n_labels in [(300, 8)] if setting.small else sizes:
        prepare = partial(toy if setting.small else animals, n_images, n_labels)
        competitors = [
            Competitor(name, entry.fit, entry.warm, prepare, entry.judge, entry.needs, entry.cores)
            for name, entry in entries.items()
        ]
        results = race(competitors, repeats, fresh=True, too_long=TOO_LONG)
        auto = next((r.seconds for name, r in results.items() if name.startswith("maxmargin auto")), None)
        for name, result in results.items():
            rows.append(
                {
                    "images": n_images,
                    "labels": n_labels,
                    "method": name,
                    "repeats": len(result.runs),
                    "seconds": f"{result.seconds:.4g}",
                    "first_seconds": f"{statistics.median(run.warm_seconds for run in result.runs):.4g}",
                    "gap": f"{statistics.median(run.answer for run in result.runs):.4g}",
                    "peak_mib": f"{statistics.median(run.process_mib for run in result.runs):.4g}",
                    "times_auto": "" if auto is None else f"{result.seconds / auto:.4g}",
                    "machine": f"{machine()}, {THREADS[entries[name].cores]}",
                }
            )
    save(setting, "kernel_multilabel", rows, KEY)
    return rows


def peers(setting: Setting) -> None:
    for n_images in (2000,) if setting.small else (2000, 5000):
        at_sizes(ENTRIES, [(n_images, 85)], setting.times(REPEATS), setting)


def prior(setting: Setting) -> None:
    at_sizes(TIED, [(1000, 85), (2000, 85)], setting.times(REPEATS), setting)


def growth(setting: Setting) -> None:
    sizes = [(n, 85) for n in (500, 1000, 2000, 4000)] + [(2000, L) for L in (5, 10, 20, 40)]
    entries = {name: ENTRIES[name] for name in ("maxmargin auto", "maxmargin smo", "sklearn SVC")}
    rows = at_sizes(entries, sizes, setting.times(REPEATS), setting)
    against = [("images", {"labels": 85}), ("labels", {"images": 2000})]
    panels = [
        Panel(key, "seconds", lines(rows, key, "seconds", "method", **fixed), f"{fixed}")
        for key, fixed in against
    ]
    plot(setting, "kernel_multilabel_growth", [panels])


def everything(setting: Setting) -> None:
    two = Entry(partial(ours.fit_kernel, n_jobs=2), ours.kernel_coefficients, cores=2)
    entries = {"maxmargin auto": ENTRIES["maxmargin auto"], "maxmargin auto, two threads": two}
    at_sizes(entries, [(24_295, 85)], 1, setting)


RACES = {"race": peers, "prior": prior, "growth": growth, "all": everything}
