"""Races of the linear MultiLabelSVC.

    python -m benchmarks.multilabel rcv1       # equal certified gap 1e-3 and 1e-4, one and two threads, prior
    python -m benchmarks.multilabel sets       # bibtex, delicious, tmc2007-500, mediamill-reduced, yeast
    python -m benchmarks.multilabel full       # RCV1's full shape, generated; growth with n, words, labels
    python -m benchmarks.multilabel --small    # everything at a toy size

Everybody is judged by the same objective: the gap of a solution is its primal value against the
best dual value known. A peer is given the loosest of its tolerances that meets the gap.
Seconds are medians of `REPEATS` alternating runs, each in its own process; compilation is apart.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np

from benchmarks import competitors as who
from benchmarks.measure import RESULTS, run_alone, write_csv
from benchmarks.problems import Problem, generated, real
from maxmargin import MultiLabelSVC, priors

REPEATS = 3


def best_dual(problem: Problem) -> float:
    """A dual value within 1e-5 of the optimum, from a long run of ours."""
    model = MultiLabelSVC(C=problem.C, tol=1e-5, n_jobs=-1, random_state=1, max_iter=3000)
    return model.fit(problem.X, problem.Y).dual_objective_


def gap_of(problem: Problem, weights: who.Weights, dual: float) -> float:
    primal = problem.primal(*weights)
    return (primal - dual) / primal


def race(
    problem: Problem, entrants: list[who.Competitor], gap: float, dual: float, cores: int = 1
) -> list[dict]:
    """Median seconds and peak memory of everybody at the loosest setting that meets the gap."""
    warm = problem.part(100)
    rows: dict[str, dict[str, Any]] = {}
    settings: dict[str, float] = {}

    def once(entrant: who.Competitor, tol: float) -> dict[str, Any]:
        return run_alone(lambda: entrant.fit(problem, tol), lambda: entrant.warm_up(warm, tol), cores)

    runs: dict[str, list[dict[str, Any]]] = {}
    for entrant in entrants:
        for tol in entrant.tolerances or (gap,):
            report = once(entrant, tol)
            reached = gap_of(problem, report["answer"], dual)
            settings[entrant.name] = tol
            runs[entrant.name] = [report]
            if reached <= gap:
                break
        rows[entrant.name] = {"gap": reached, "tol": tol}
        print(f"  {entrant.name}: tol {tol:g}, gap {reached:.2e}, {report['seconds']:.3f} s", flush=True)
    for _ in range(REPEATS - 1):
        for entrant in entrants:
            runs[entrant.name].append(once(entrant, settings[entrant.name]))
    first = float(np.median([run["seconds"] for run in runs[entrants[0].name]]))
    table = []
    for entrant in entrants:
        seconds = float(np.median([run["seconds"] for run in runs[entrant.name]]))
        table.append(
            {
                "problem": problem.name,
                "target_gap": gap,
                "competitor": entrant.name,
                "cores": cores,
                "seconds": round(seconds, 4),
                "times_ours": round(seconds / first, 2),
                "gap": f"{rows[entrant.name]['gap']:.3g}",
                "tol": rows[entrant.name]["tol"],
                "peak_mib": round(max(run["peak_mib"] for run in runs[entrant.name])),
                "first_call_seconds": round(runs[entrant.name][0]["warm_seconds"], 3),
            }
        )
        print("  ", table[-1], flush=True)
    return table


def rcv1(small: bool) -> list[dict]:
    problem = real("rcv1-subsets")
    problem = problem.part(800) if small else problem
    dual = best_dual(problem)
    table = []
    for gap in (1e-3, 1e-4):
        single = who.ours("MultiLabelSVC, float32 X", dtype=np.float32)
        entrants = [who.ours(), single, who.LINEAR_SVC, who.LIBMULTILABEL, who.NULL]
        table += race(problem, entrants, gap, dual)
        table += race(problem, [who.ours("MultiLabelSVC, two threads", n_jobs=2)], gap, dual, cores=2)
    R = priors.from_labels(problem.Y)
    coupled = MultiLabelSVC(prior=R, tol=1e-5, n_jobs=-1, random_state=1, max_iter=3000)
    coupled_dual = coupled.fit(problem.X, problem.Y).dual_objective_
    seconds, memory, gaps = [], [], []
    for _ in range(REPEATS):
        report = run_alone(
            lambda: MultiLabelSVC(prior=R, random_state=0).fit(problem.X, problem.Y).primal_objective_,
            lambda: MultiLabelSVC(prior=R, precision="single", max_iter=2).fit(
                problem.X[:100], problem.Y[:100]
            ),
        )
        seconds.append(report["seconds"])
        memory.append(report["peak_mib"])
        gaps.append((report["answer"] - coupled_dual) / report["answer"])
    plain = next(row["seconds"] for row in table if row["competitor"] == "MultiLabelSVC")
    table.append(
        {
            "problem": problem.name,
            "target_gap": 1e-3,
            "competitor": "MultiLabelSVC, dense prior",
            "cores": 1,
            "seconds": round(float(np.median(seconds)), 4),
            "times_ours": round(float(np.median(seconds)) / plain, 2),
            "gap": f"{max(gaps):.3g}",
            "tol": 1e-3,
            "peak_mib": round(max(memory)),
        }
    )
    print("  ", table[-1], flush=True)
    return table


def sets(small: bool) -> list[dict]:
    table = []
    for name in ("yeast", "mediamill-reduced", "bibtex", "tmc2007-500", "delicious"):
        problem = real(name)
        if small:
            problem = problem.part(300)
        table += race(problem, [who.ours(), who.LINEAR_SVC], 1e-3, best_dual(problem))
    return table


def full(small: bool) -> list[dict]:
    """The whole of RCV1's shape, and how seconds grow with samples, words and labels."""
    unit = 2_000 if small else 50_000
    shapes = [{"n": unit * k} for k in (1, 2, 4)]
    shapes += [{"n": unit, "nnz": nnz} for nnz in (38, 150)]
    shapes += [{"n": unit, "labels": labels} for labels in (26, 52, 206)]
    shapes += [{"n": 4_000 if small else 781_265}]
    table = []
    for shape in shapes:
        problem = generated(**shape)
        report = run_alone(
            lambda p=problem: vars(MultiLabelSVC(n_jobs=2, random_state=0).fit(p.X, p.Y))["history_"][-1],
            lambda p=problem: MultiLabelSVC(random_state=0, max_iter=2).fit(p.X[:100], p.Y[:100]),
            cores=2,
        )
        table.append(
            {
                "n": shape["n"],
                "nnz": shape.get("nnz", 75),
                "labels": shape.get("labels", 103),
                "cores": 2,
                "seconds": round(report["seconds"], 3),
                "gap": f"{report['answer']['gap']:.3g}",
                "epochs": report["answer"]["epoch"],
                "peak_mib": round(report["peak_mib"]),
                "process_mib": round(report["process_mib"]),
            }
        )
        print("  ", table[-1], flush=True)
    plot_growth(table)
    return table


def plot_growth(table: list[dict]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
    base = table[0]
    for axis, key in zip(axes, ("n", "nnz", "labels"), strict=True):
        others = [k for k in ("n", "nnz", "labels") if k != key]
        line = [row for row in table if all(row[k] == base[k] for k in others)]
        line.sort(key=lambda row: row[key])
        axis.loglog([row[key] for row in line], [row["seconds"] for row in line], "o-")
        axis.loglog(
            [row[key] for row in line],
            [base["seconds"] * row[key] / base[key] for row in line],
            ":",
            c="gray",
        )
        axis.set(xlabel={"n": "samples", "nnz": "words per sample", "labels": "labels"}[key])
    axes[0].set(ylabel="seconds (dotted: linear)")
    figure.savefig(RESULTS / "multilabel_growth.png", dpi=120)


RACES = {"rcv1": rcv1, "sets": sets, "full": full}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("races", nargs="*", metavar="race", help=f"any of {', '.join(RACES)}; all by default")
    parser.add_argument("--small", action="store_true", help="toy sizes, to see that it runs")
    options = parser.parse_args(arguments)
    unknown = set(options.races) - set(RACES)
    if unknown:
        parser.error(f"unknown race {sorted(unknown)[0]!r}; choose from {', '.join(RACES)}")
    warnings.simplefilter("ignore")
    for name in options.races or RACES:
        print(name, flush=True)
        table = RACES[name](options.small)
        print(write_csv(f"multilabel_{name}{'_small' if options.small else ''}", table))


if __name__ == "__main__":
    main()
