"""Numbers that words take from the result files.

A verdict, or the words beside the cells of a claim, names what is counted over several rows in braces: "in
{pl_fewer_passes} of {pl_cases} cases". A page names it by the role `count`, and a single field by `cell`. So
these numbers follow the files too.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

Row = dict[str, str]
# What fits of table 1 of M3L head for.
GAP = 1e-3
COUNTERS: dict[str, Callable[[Tables], str]] = {}


class Tables:
    """The result files, read when asked for."""

    def __init__(self, results: Path) -> None:
        self.results = results
        self._read: dict[str, list[Row]] = {}

    def rows(self, table: str, **wanted: str) -> list[Row]:
        """The rows of a result file that have the wanted values."""
        if table not in self._read:
            with (self.results / f"{table}.csv").open(newline="", encoding="utf-8") as file:
                lines = csv.DictReader(line for line in file if not line.startswith("#"))
                self._read[table] = list(lines)
        return [row for row in self._read[table] if all(row[k] == v for k, v in wanted.items())]

    def row(self, table: str, **wanted: str) -> Row:
        """The one row that has the wanted values."""
        found = self.rows(table, **wanted)
        if len(found) != 1:
            raise ValueError(f"{table}.csv has {len(found)} rows with {wanted}, not one.")
        return found[0]

    def number(self, table: str, column: str, **wanted: str) -> float:
        """One field of the one row that has the wanted values."""
        return float(self.row(table, **wanted)[column])


def cell(tables: Tables, words: str) -> str:
    """A field of one row, from "table; column; key=value; ...".

    Behind the column may stand how a number is written: "gap:.3f", "letter error:.1%".
    """
    table, column, *wanted = [word.strip() for word in words.split(";")]
    name, _, form = column.partition(":")
    found = tables.row(table, **dict(key.split("=", 1) for key in wanted))[name]
    return format(float(found), form).replace("%", " %") if form else found


class Counts(dict[str, str]):
    """The counted numbers by name, for `str.format_map`."""

    def __init__(self, results: Path) -> None:
        super().__init__()
        self.tables = Tables(results)

    def __missing__(self, name: str) -> str:
        self[name] = COUNTERS[name](self.tables)
        return self[name]


def counter(work: Callable[[Tables], str]) -> Callable[[Tables], str]:
    """Let verdicts name what a function counts."""
    COUNTERS[work.__name__] = work
    return work


def span(values: Iterable[float], digits: int = 2) -> str:
    """The smallest and the largest number."""
    found = sorted(values)
    return f"{found[0]:.{digits}g} to {found[-1]:.{digits}g}"


# Many labels with a prior


def _awa_gain(tables: Tables, column: str) -> float:
    row = {"images": "200", "kernel": "rbf", "chosen_by": "class accuracy"}
    with_prior = tables.number("zero_shot_awa", column, method="m3l", **row)
    return with_prior - tables.number("zero_shot_awa", column, method="one-vs-all", **row)


@counter
def awa_class_gain(tables: Tables) -> str:
    return f"{_awa_gain(tables, 'class_accuracy_percent'):.1f}"


@counter
def awa_auc_gain(tables: Tables) -> str:
    return f"{_awa_gain(tables, 'auc_percent'):.1f}"


def _awa_pairs(tables: Tables, column: str) -> dict[str, float]:
    """What the prior adds to models chosen by animals recognised or by AUC, by how they were made."""
    gains: dict[str, float] = {}
    for row in tables.rows("zero_shot_awa", method="m3l"):
        if row["chosen_by"] in ("class accuracy", "auc"):
            same = {key: row[key] for key in ("images", "kernel", "chosen_by")}
            without = tables.number("zero_shot_awa", column, method="one-vs-all", **same)
            by = "AUC" if row["chosen_by"] == "auc" else "animals"
            gains[f"{row['kernel']} with {row['images']} images by {by}"] = float(row[column]) - without
    return gains


@counter
def awa_pairs(tables: Tables) -> str:
    return str(len(_awa_pairs(tables, "auc_percent")))


@counter
def awa_auc_rises(tables: Tables) -> str:
    return str(sum(gain > 0 for gain in _awa_pairs(tables, "auc_percent").values()))


@counter
def awa_class_rises(tables: Tables) -> str:
    return str(sum(gain > 0 for gain in _awa_pairs(tables, "class_accuracy_percent").values()))


@counter
def awa_class_falls(tables: Tables) -> str:
    gains = _awa_pairs(tables, "class_accuracy_percent")
    return " and ".join(made for made, gain in gains.items() if gain <= 0)


@counter
def awa_ridge_below(tables: Tables) -> str:
    """How far ridge regression is below the training majority."""
    ridge, majority = (
        tables.number("zero_shot_awa", "hamming_percent", images="200", method=method)
        for method in ("ridge", "constant: majority of the training labels")
    )
    return f"{majority - ridge:.1f}"


@counter
def awa_linear_all(tables: Tables) -> str:
    row = {"images": "all", "kernel": "linear", "chosen_by": "paper", "method": "m3l"}
    return f"{tables.number('zero_shot_awa', 'hamming_percent', **row):.1f}"


def _awa_all(tables: Tables, method: str) -> float:
    row = {"images": "all", "kernel": "rbf", "chosen_by": "paper", "method": method}
    return tables.number("zero_shot_awa", "hamming_percent", **row)


@counter
def awa_all_gain(tables: Tables) -> str:
    return f"{_awa_all(tables, 'one-vs-all') - _awa_all(tables, 'm3l'):.1f}"


@counter
def awa_all_below(tables: Tables) -> str:
    row = {"images": "all", "method": "constant: prior alone"}
    return f"{tables.number('zero_shot_awa', 'hamming_percent', **row) - _awa_all(tables, 'm3l'):.1f}"


@counter
def sweep_fall(tables: Tables) -> str:
    left, right = (tables.number("label_correlation_sweep", "hamming_percent", r=r) for r in ("-0.9", "0.4"))
    return f"{right - left:.1f}"


@counter
def sweep_auc(tables: Tables) -> str:
    """Where the area under the ROC curve is largest."""
    best = max(tables.rows("label_correlation_sweep"), key=lambda row: float(row["auc_percent"]))
    return f"{float(best['auc_percent']):.1f} at r = {best['r']}"


@counter
def sweep_spread(tables: Tables) -> str:
    return f"{tables.number('label_correlation_sweep', 'spread', r='0.4'):.1f}"


def _times_faster(tables: Tables, kind: str, ours: str, peer: str) -> dict[str, float]:
    """How many times as long the peer takes as ours, at the largest size of every set that both solve."""
    found: dict[str, float] = {}
    rows = {
        (row["data"], int(row["samples"]), row["solver"]): row
        for row in tables.rows("training_times", kind=kind)
        if not row["cpu_seconds"].startswith("too slow") and float(row["gap"] or 0) <= GAP
    }
    for data, size, solver in sorted(rows):
        if solver == ours and (data, size, peer) in rows:
            times = [float(rows[data, size, name]["cpu_seconds"]) for name in (peer, ours)]
            found[data] = times[0] / times[1]
    return found


@counter
def linear_ratios(tables: Tables) -> str:
    return span(_times_faster(tables, "linear", "dca", "LinearSVC per label").values())


@counter
def linear_default_ratios(tables: Tables) -> str:
    return span(_times_faster(tables, "linear", "auto", "LinearSVC per label").values())


@counter
def rbf_ratios(tables: Tables) -> str:
    return span(_times_faster(tables, "rbf", "smo", "SVC per label").values())


@counter
def linear_kernel_ratios(tables: Tables) -> str:
    return span(_times_faster(tables, "linear kernel", "smo", "SVC per label").values())


def _set_names(found: Iterable[str]) -> str:
    names = {"rcv1-subsets": "RCV1", "tmc2007-500": "SIAM", "awa1": "AwA", "mediamill-reduced": "MediaMill"}
    return ", ".join(sorted(names.get(data, data) for data in found))


@counter
def linear_sets(tables: Tables) -> str:
    return _set_names(_times_faster(tables, "linear", "dca", "LinearSVC per label"))


@counter
def linear_kernel_sets(tables: Tables) -> str:
    return _set_names(_times_faster(tables, "linear kernel", "smo", "SVC per label"))


def _beside_smo(tables: Tables, solver: str, column: str) -> str:
    """How many times as much SVC takes as smo to 1 % of the optimum, over the sets."""
    ours = {row["data"]: float(row[column]) for row in tables.rows("kernel_convergence", solver="smo")}
    rows = tables.rows("kernel_convergence", solver=solver)
    return span(float(row[column]) / ours[row["data"]] for row in rows)


@counter
def convergence_sets(tables: Tables) -> str:
    return _set_names(row["data"] for row in tables.rows("kernel_convergence", solver="smo"))


@counter
def svc_updates_in_turn(tables: Tables) -> str:
    return _beside_smo(tables, "SVC, label after label", "updates_to_1_percent")


@counter
def svc_updates_stopped(tables: Tables) -> str:
    return _beside_smo(tables, "SVC, falling tolerance", "updates_to_1_percent")


@counter
def svc_seconds_stopped(tables: Tables) -> str:
    return _beside_smo(tables, "SVC, falling tolerance", "cpu_seconds_to_1_percent")


@counter
def over_time_change(tables: Tables) -> str:
    errors = [float(row["test_percent"]) for row in tables.rows("rcv1_over_time", solver="dca")]
    return f"{max(errors) - min(errors):.3f}"


@counter
def over_time_gap(tables: Tables) -> str:
    return f"{max(float(row['gap']) for row in tables.rows('rcv1_over_time', solver='dca')):.2g}"


# Online label ranking


def _ranking(tables: Tables) -> dict[tuple[str, str], dict[str, Row]]:
    """The rows of table 1 by user and regulariser, then by update."""
    found: dict[tuple[str, str], dict[str, Row]] = {}
    for row in tables.rows("ranking_table1", rule="first fifth"):
        found.setdefault((row["user"], row["regulariser"]), {})[row["update"]] = row
    return found


def _error(row: Row) -> float:
    return float(row["error_percent"])


@counter
def ranking_ordered(tables: Tables) -> str:
    cases = _ranking(tables).values()
    fine = sum(_error(case["III"]) < _error(case["II"]) < _error(case["I"]) for case in cases)
    return f"{fine} of {len(cases)}"


@counter
def most_frequent_folder(tables: Tables) -> str:
    """Mistakes, in percent, of naming the folder that was most frequent so far."""
    rows = [tables.row("ranking_bound", user=user, regulariser="squared", setting="table 1")
            for user in ("beck-s", "lokay-m")]  # fmt: skip
    return ", ".join(
        f"{row['user']} {100 * int(row['most_frequent_folder']) / int(row['rounds']):.1f} %" for row in rows
    )


@counter
def ranking_points(tables: Tables) -> str:
    return span(_error(case["I"]) - _error(case["III"]) for case in _ranking(tables).values())


def _entropy_gains(tables: Tables, column: str) -> list[float]:
    cases = _ranking(tables)
    return [
        float(cases[user, "squared"][update][column]) - float(row[column])
        for (user, regulariser), case in cases.items()
        if regulariser == "entropy"
        for update, row in case.items()
    ]


@counter
def entropy_better(tables: Tables) -> str:
    gains = _entropy_gains(tables, "error_percent")
    return f"{sum(gain > 0 for gain in gains)} of {len(gains)}"


@counter
def entropy_gain(tables: Tables) -> str:
    gains = _entropy_gains(tables, "error_percent")
    return f"{sum(gains) / len(gains):.1f}"


@counter
def entropy_paper_gain(tables: Tables) -> str:
    gains = _entropy_gains(tables, "paper_percent")
    return f"{sum(gains) / len(gains):.1f}"


@counter
def bounds_that_say(tables: Tables) -> str:
    rows = tables.rows("ranking_bound", setting="smallest bound")
    parts = {kind: [row for row in rows if row["regulariser"] == kind] for kind in ("entropy", "squared")}
    return " and ".join(
        f"{sum(row['says_something'] == 'yes' for row in part)} of {len(part)} mailboxes with the {kind}"
        for kind, part in parts.items()
    ).replace("the squared", "the squared norm")


@counter
def interior_iterations(tables: Tables) -> str:
    rows = tables.rows("ranking_bound", setting="table 1")
    return span(float(row["mean_iterations"]) for row in rows)


@counter
def interior_most(tables: Tables) -> str:
    return str(max(int(row["most_iterations"]) for row in tables.rows("ranking_bound", setting="table 1")))


# Partial linearization


def _fewer(rows: list[Row], column: str) -> int:
    return sum(float(row[f"{column}_to_common"]) < float(row[f"bcfw_{column}_to_common"]) for row in rows)


@counter
def pl_cases(tables: Tables) -> str:
    return str(len(tables.rows("partial_linearization_sizes", solver="BCPL")))


@counter
def pl_limit(tables: Tables) -> str:
    """The CPU seconds of a run."""
    return span({float(row["limit_s"]) for row in tables.rows("partial_linearization_sizes")})


@counter
def pl_fewer_passes(tables: Tables) -> str:
    return str(_fewer(tables.rows("partial_linearization_sizes", solver="BCPL"), "passes"))


@counter
def pl_less_time(tables: Tables) -> str:
    return str(_fewer(tables.rows("partial_linearization_sizes", solver="BCPL"), "cpu"))


def _to_the_gap(tables: Tables) -> list[tuple[Row, Row]]:
    """BCPL at the paper's temperature and BCFW, on every set at every n and lambda."""
    bcfw = {_case(row): row for row in tables.rows("multiclass_solvers", solver="bcfw")}
    rows = tables.rows("multiclass_solvers", solver="bcpl 0.01 (paper)")
    return [(row, bcfw[_case(row)]) for row in rows]


def _case(row: Row) -> tuple[str, str, str]:
    return row["data"], row["n"], row["lambda"]


def _reached(row: Row) -> bool:
    return row["reached"] == f"{row['seeds']} of {row['seeds']}"


@counter
def gap_cases(tables: Tables) -> str:
    return str(len(_to_the_gap(tables)))


@counter
def gap_less_time(tables: Tables) -> str:
    """How often BCPL comes to the gap, and sooner than BCFW."""
    return str(sum(_reached(ours) and _sooner(ours, other, "cpu_s") for ours, other in _to_the_gap(tables)))


@counter
def gap_fewer_passes(tables: Tables) -> str:
    return str(sum(_reached(ours) and _sooner(ours, other, "passes") for ours, other in _to_the_gap(tables)))


@counter
def gap_missed(tables: Tables) -> str:
    """How often neither comes to the gap within the limit."""
    return str(sum(not _reached(ours) and not _reached(other) for ours, other in _to_the_gap(tables)))


def _cases(tables: Tables, solver: str) -> dict[tuple[str, str, str], Row]:
    """The rows of one solver, by data, n and lambda."""
    return {_case(row): row for row in tables.rows("multiclass_solvers", solver=solver)}


@counter
def gap_pass_costs(tables: Tables) -> str:
    """How many times as long a pass of BCPL takes."""
    return span(
        float(ours["cpu_s"]) / float(ours["passes"]) * float(other["passes"]) / float(other["cpu_s"])
        for ours, other in _to_the_gap(tables)
        if _reached(ours) and _reached(other)
    )


@counter
def plain_ratios(tables: Tables) -> str:
    """How many times as long BCPL takes as BCFW on letter and satimage, where both come to the gap."""
    return span(
        float(ours["cpu_s"]) / float(other["cpu_s"])
        for ours, other in _to_the_gap(tables)
        if ours["data"] in ("letter", "satimage") and _reached(ours) and _reached(other)
    )


@counter
def auto_no_more_passes(tables: Tables) -> str:
    bcfw = _cases(tables, "bcfw")
    rows = [(row, bcfw[case]) for case, row in _cases(tables, "bcpl auto").items()]
    return str(
        sum(
            _reached(ours) and (not _reached(other) or float(ours["passes"]) <= float(other["passes"]))
            for ours, other in rows
        )
    )


@counter
def auto_less_time(tables: Tables) -> str:
    bcfw = _cases(tables, "bcfw")
    rows = _cases(tables, "bcpl auto").items()
    return str(sum(_reached(row) and _sooner(row, bcfw[case], "cpu_s") for case, row in rows))


@counter
def oeg_auto_reached(tables: Tables) -> str:
    return str(sum(map(_reached, _cases(tables, "oeg auto").values())))


@counter
def oeg_best_reached(tables: Tables) -> str:
    return str(sum(map(_reached, _cases(tables, "oeg best").values())))


def _exact_leads(tables: Tables) -> list[float]:
    """How many times as long the fastest other method takes as the exact step, case by case."""
    rivals = ("bcfw", "bcfw averaged", "bcpl 0.01 (paper)", "bcpl auto", "oeg auto", "oeg best")
    others = [_cases(tables, solver) for solver in rivals]
    return [
        min(float(rows[case]["cpu_s"]) for rows in others) / float(row["cpu_s"])
        for case, row in _cases(tables, "exact").items()
    ]


@counter
def exact_first(tables: Tables) -> str:
    return str(sum(lead > 1 for lead in _exact_leads(tables)))


@counter
def exact_lead(tables: Tables) -> str:
    return f"{max(_exact_leads(tables)):.2g}"


def _sooner(ours: Row, other: Row, column: str) -> bool:
    return not _reached(other) or float(ours[column]) < float(other[column])


def _passes(tables: Tables, table: str) -> str:
    """Passes of BCPL and of BCFW to the common objective, by falling lambda."""
    rows = tables.rows(table, solver="BCPL", temperature="0.01")
    both = [(float(row["passes_to_common"]), float(row["bcfw_passes_to_common"])) for row in rows]
    return ", ".join(f"{ours:.0f} against {other:.0f}" for ours, other in both)


def _pass_costs(tables: Tables, *names: str) -> list[float]:
    """How many times as long a pass of BCPL takes."""
    rows = [row for name in names for row in tables.rows(name, solver="BCPL", temperature="0.01")]
    return [
        float(row["cpu_to_common"]) / float(row["passes_to_common"])
        * float(row["bcfw_passes_to_common"]) / float(row["bcfw_cpu_to_common"])
        for row in rows
    ]  # fmt: skip


def _times(tables: Tables, table: str, temperature: str) -> str:
    """CPU seconds of BCPL and of BCFW to the common objective, by falling lambda."""
    rows = tables.rows(table, solver="BCPL", temperature=temperature)
    both = [[_with_spread(row, f"{name}cpu_to_common") for name in ("", "bcfw_")] for row in rows]
    return ", ".join(f"{ours} against {other}" for ours, other in both)


def _with_spread(row: Row, column: str) -> str:
    return f"{float(row[column]):.2g} ± {float(row[f'{column}_spread']):.1g}"


@counter
def word_times(tables: Tables) -> str:
    return _times(tables, "partial_linearization_words", "0.01")


@counter
def word_times_hotter(tables: Tables) -> str:
    return _times(tables, "partial_linearization_words", "0.1")


@counter
def bag_times(tables: Tables) -> str:
    return _times(tables, "partial_linearization_bags", "0.01")


@counter
def bag_limit(tables: Tables) -> str:
    (limit,) = {row["limit_s"] for row in tables.rows("partial_linearization_bags")}
    return limit


@counter
def word_passes(tables: Tables) -> str:
    return _passes(tables, "partial_linearization_words")


@counter
def bag_passes(tables: Tables) -> str:
    return _passes(tables, "partial_linearization_bags")


@counter
def pass_costs(tables: Tables) -> str:
    return span(_pass_costs(tables, "partial_linearization_words", "partial_linearization_bags"))


@counter
def word_pass_costs(tables: Tables) -> str:
    return span(_pass_costs(tables, "partial_linearization_words"))


@counter
def bag_pass_costs(tables: Tables) -> str:
    return span(_pass_costs(tables, "partial_linearization_bags"))


def _ends(tables: Tables, solver: str) -> list[Row]:
    """What a solver comes to on OCR words, by falling lambda; of several the one with the highest dual."""
    rows = [row for row in tables.rows("ocr_words_gaps") if row["solver"].startswith(solver)]
    return [
        max((row for row in rows if row["lambda"] == lam), key=lambda row: float(row["dual"]))
        for lam in sorted({row["lambda"] for row in rows}, key=float, reverse=True)
    ]


def _gaps(tables: Tables, solver: str) -> str:
    ends = _ends(tables, solver)
    return ", ".join(f"{float(row['gap']):.2g} ± {float(row['gap_spread']):.1g}" for row in ends)


@counter
def ocr_cut(tables: Tables) -> str:
    """The CPU seconds of every line."""
    (cut,) = {row["limit_s"] for row in tables.rows("ocr_words_gaps")}
    return f"{float(cut):g}"


@counter
def ocr_default_seconds(tables: Tables) -> str:
    """When the default solver came to a gap of 1e-4, where it always did, by falling lambda."""
    ends = [row for row in _ends(tables, "pairwise, cached") if row["cpu_s_to_0.0001"]]
    return " and ".join(
        f"{float(r['cpu_s_to_0.0001']):.2g} ± {float(r['cpu_s_to_0.0001_spread']):.1g}" for r in ends
    )


@counter
def ocr_safeguarded_ahead(tables: Tables) -> str:
    """At how many lambdas the safeguarded BCPL ends with a higher dual objective than BCFW."""
    both = list(zip(_ends(tables, "BCPL safeguarded"), _ends(tables, "BCFW"), strict=True))
    return f"{sum(float(ours['dual']) > float(other['dual']) for ours, other in both)} of {len(both)}"


@counter
def ocr_bcfw_gaps(tables: Tables) -> str:
    return _gaps(tables, "BCFW")


@counter
def ocr_bcpl_gaps(tables: Tables) -> str:
    return _gaps(tables, "BCPL tau=0.01")


@counter
def ocr_oeg_gaps(tables: Tables) -> str:
    return _gaps(tables, "OEG tau=")


# Few basis vectors


def _vectors(tables: Tables, method: str) -> dict[str, float]:
    """How many times as many vectors a machine needs as SMSVM, where both come to the accuracy."""
    rows = {(row["data"], row["method"]): row for row in tables.rows("sparse_multiclass")}
    return {
        data: float(rows[data, method]["vectors"]) / float(row["vectors"])
        for (data, name), row in rows.items()
        if name == "SMSVM" and (data, method) in rows and rows[data, method]["reached"] != "False"
    }


def _named_span(ratios: dict[str, float]) -> str:
    least, most = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
    return f"{ratios[least]:.2g} ({least}) to {ratios[most]:.2g} ({most})"


def _common_vectors(tables: Tables, method: str) -> dict[str, float]:
    """How many times as many vectors a machine needs as SMSVM at the accuracy that all three come to."""
    rows = {row["data"]: row for row in tables.rows("sparse_multiclass", method=method)}
    return {
        row["data"]: float(rows[row["data"]]["vectors_to_common"]) / float(row["vectors_to_common"])
        for row in tables.rows("sparse_multiclass", method="SMSVM")
        if row["vectors_to_common"]
    }


@counter
def common_sets(tables: Tables) -> str:
    return str(len(_common_vectors(tables, "ImVM")))


@counter
def imvm_common(tables: Tables) -> str:
    return _named_span(_common_vectors(tables, "ImVM"))


@counter
def imvm_common_no_more(tables: Tables) -> str:
    return ", ".join(sorted(name for name, ratio in _common_vectors(tables, "ImVM").items() if ratio <= 1))


@counter
def ova_common(tables: Tables) -> str:
    return _named_span(_common_vectors(tables, "Sparse-OVA"))


@counter
def ova_no_more(tables: Tables) -> str:
    names = sorted(name for name, ratio in _vectors(tables, "Sparse-OVA").items() if ratio <= 1)
    return ", ".join(names) or "none"


def _full_scoring(tables: Tables, column: str) -> dict[str, float]:
    """How many times as much ImVM takes with candidates scored as published, over its sets."""
    rows = {(row["data"], row["method"]): row for row in tables.rows("sparse_multiclass")}
    return {
        data: float(row[column]) / float(rows[data, "ImVM"][column])
        for (data, method), row in rows.items()
        if method == "ImVM, full scoring"
    }


@counter
def full_scoring_vectors(tables: Tables) -> str:
    return _named_span(_full_scoring(tables, "vectors"))


@counter
def full_scoring_cost(tables: Tables) -> str:
    return span(_full_scoring(tables, "training_s").values())


@counter
def cs_missed(tables: Tables) -> str:
    """Where the squared Crammer-Singer loss does not come to the accuracy."""
    rows = tables.rows("sparse_multiclass", method="SMSVM, squared CS", reached="False")
    return ", ".join(row["data"] for row in rows) or "none"


@counter
def ova_ratios(tables: Tables) -> str:
    return _named_span(_vectors(tables, "Sparse-OVA"))


@counter
def ova_missed(tables: Tables) -> str:
    return ", ".join(
        row["data"] for row in tables.rows("sparse_multiclass", method="Sparse-OVA", reached="False")
    )


@counter
def imvm_ratios(tables: Tables) -> str:
    return _named_span(_vectors(tables, "ImVM"))


@counter
def cs_ratios(tables: Tables) -> str:
    return _named_span(_vectors(tables, "SMSVM, squared CS"))


@counter
def imvm_no_more(tables: Tables) -> str:
    return ", ".join(sorted(data for data, ratio in _vectors(tables, "ImVM").items() if ratio <= 1))


def _imvm_missed(tables: Tables) -> list[Row]:
    """Where ImVM does not come to the goal, although it grew to its cap."""
    rows = tables.rows("sparse_multiclass", method="ImVM", reached="False")
    return [row for row in rows if not row["note"]]


@counter
def imvm_missed(tables: Tables) -> str:
    return ", ".join(row["data"] for row in _imvm_missed(tables))


@counter
def imvm_short(tables: Tables) -> str:
    """By how many points the best accuracy of ImVM is below the goal, where it is."""
    return span(float(row["goal"]) - float(row["accuracy"]) for row in _imvm_missed(tables))


@counter
def imvm_cut(tables: Tables) -> str:
    """Where time ended the growth of ImVM."""
    rows = [row for row in tables.rows("sparse_multiclass", method="ImVM") if row["note"]]
    cut = [f"{row['data']} ({row['note']}, {float(row['grown_to']):.0f} vectors)" for row in rows]
    return ", ".join(cut) or "no set"


def _both(tables: Tables, method: str) -> list[tuple[Row, Row]]:
    """The rows of a machine and of SMSVM on every set."""
    ours = {row["data"]: row for row in tables.rows("sparse_multiclass", method="SMSVM")}
    return [(row, ours[row["data"]]) for row in tables.rows("sparse_multiclass", method=method)]


def _full(tables: Tables) -> list[tuple[Row, Row]]:
    """The full machines that were trained to the end, and SMSVM."""
    return [pair for name in ("CS", "WW") for pair in _both(tables, name) if not pair[0]["note"]]


@counter
def full_ratios(tables: Tables) -> str:
    """How many times as many vectors the full machines keep."""
    return span(float(full["vectors"]) / float(ours["vectors"]) for full, ours in _full(tables))


@counter
def full_ahead(tables: Tables) -> str:
    """By how many points the full machines are above SMSVM's basis."""
    return _named_span(
        {full["data"]: float(full["accuracy"]) - float(ours["accuracy"]) for full, ours in _full(tables)}
    )


@counter
def full_cut(tables: Tables) -> str:
    cut = [f"{full['data']} ({full['note']})" for full, _ in _both(tables, "CS") if full["note"]]
    return ", ".join(cut) or "none"


def _training(tables: Tables, method: str) -> list[float]:
    """How many times as long a machine trains as SMSVM, set by set."""
    return [float(row["training_s"]) / float(ours["training_s"]) for row, ours in _both(tables, method)]


@counter
def imvm_slowest(tables: Tables) -> str:
    both = zip(_training(tables, "ImVM"), _training(tables, "Sparse-OVA"), strict=True)
    slowest = [imvm > max(ova, 1.0) for imvm, ova in both]
    return f"{sum(slowest)} of {len(slowest)}"


@counter
def imvm_slower(tables: Tables) -> str:
    return span(_training(tables, "ImVM"))


@counter
def ova_faster(tables: Tables) -> str:
    ratios = _training(tables, "Sparse-OVA")
    return f"{sum(ratio < 1 for ratio in ratios)} of {len(ratios)}"


def _poker(tables: Tables, column: str, method: str) -> float:
    return tables.number("sparse_multiclass", column, data="poker", method=method)


@counter
def poker_times(tables: Tables) -> str:
    both = [_poker(tables, "inference_s", method) for method in ("Sparse-OVA", "SMSVM")]
    return f"{both[0] / both[1]:.0f}"


@counter
def poker_grown(tables: Tables) -> str:
    return f"{_poker(tables, 'grown_to', 'SMSVM'):.0f}"


def _sm3l(tables: Tables, column: str, data: str, method: str) -> float:
    return tables.number("sparse_multilabel", column, data=data, method=method)


@counter
def sm3l_ratios(tables: Tables) -> str:
    """How many times as many vectors the full models keep."""
    return span(
        _sm3l(tables, "vectors", data, f"M3L{prior}") / _sm3l(tables, "vectors", data, f"SM3L{prior}")
        for data in ("yeast", "mediamill-reduced")
        for prior in ("", "-P")
    )


def _sm3l_behind(tables: Tables, prior: str) -> str:
    return " and ".join(
        f"{sparse - full:.2f}"
        for data in ("yeast", "mediamill-reduced")
        for sparse, full in [[_sm3l(tables, "hamming_loss", data, f"{m}{prior}") for m in ("SM3L", "M3L")]]
    )


@counter
def sm3l_behind(tables: Tables) -> str:
    return _sm3l_behind(tables, "")


@counter
def sm3lp_behind(tables: Tables) -> str:
    return _sm3l_behind(tables, "-P")


@counter
def sm3l_prior_gain(tables: Tables) -> str:
    """What a prior from the training labels changes, yeast and MediaMill."""
    return " and ".join(
        f"{_sm3l(tables, 'hamming_loss', data, 'SM3L-P') - _sm3l(tables, 'hamming_loss', data, 'SM3L'):+.2f}"
        for data in ("yeast", "mediamill-reduced")
    )


def _per_class(tables: Tables, data: str) -> str:
    parts = [tables.rows("sparse_figures", figure="2", data=data, method=m) for m in ("SMSVM", "Sparse-OVA")]
    return " and ".join(span((float(row["vectors"]) for row in part), 3) for part in parts)


@counter
def dna_per_class(tables: Tables) -> str:
    return _per_class(tables, "dna")


@counter
def satimage_per_class(tables: Tables) -> str:
    return _per_class(tables, "satimage")


def _pair_gain(tables: Tables, pair: str, column: str, *methods: str) -> float:
    with_prior, without = (tables.number("sparse_label_pairs", column, pair=pair, method=m) for m in methods)
    return without - with_prior


@counter
def pair_gain_animals(tables: Tables) -> str:
    return f"{_pair_gain(tables, 'awa1 1:43', 'hamming_loss', 'M3L-P', 'M3L'):.1f}"


@counter
def pair_spread_animals(tables: Tables) -> str:
    row = {"pair": "awa1 1:43", "method": "M3L-P"}
    return f"{tables.number('sparse_label_pairs', 'hamming_loss_spread', **row):.1f}"


@counter
def pair_gain_mediamill(tables: Tables) -> str:
    return f"{_pair_gain(tables, 'mediamill-reduced', 'hamming_loss', 'M3L-P', 'M3L'):.1f}"


@counter
def animal_labels_right(tables: Tables) -> str:
    rows = tables.rows("sparse_animal_labels")
    return f"{sum(float(row['right_of_5']) for row in rows):.1f} of {5 * len(rows)}"


@counter
def frequent_labels_right(tables: Tables) -> str:
    rows = tables.rows("sparse_animal_labels")
    return f"{sum(int(row['most_frequent_right_of_5']) for row in rows)} of {5 * len(rows)}"


@counter
def animals_alike(tables: Tables) -> str:
    rows = tables.rows("sparse_animal_labels")
    sets = Counter(frozenset(row["labels"].split(", ")) for row in rows)
    return f"{sets.most_common(1)[0][1]} of {len(rows)}"


# Submodular sets of labels


def _pair_gains(tables: Tables, data: str, features: str) -> list[float]:
    """How far the example F1 of the machine with pairs is above that of RML, draw by draw."""
    rows = {
        (row["draw"], row["method"]): float(row["example_f1"])
        for row in tables.rows("submodular_f1", data=data, features=features)
    }
    return [value - rows[draw, "RML"] for (draw, method), value in rows.items() if method == "SubmodularSVC"]


@counter
def yeast_gains(tables: Tables) -> str:
    return span(_pair_gains(tables, "yeast", "0.01"))


@counter
def enron_gains(tables: Tables) -> str:
    return span(_pair_gains(tables, "enron", "0.01"))


@counter
def all_features_difference(tables: Tables) -> str:
    gains = {name: _pair_gains(tables, name, "1") for name in ("yeast", "enron")}
    return " and ".join(f"{sum(gain) / len(gain):.4f} ({name})" for name, gain in gains.items())


def _all_features(tables: Tables, data: str, method: str) -> str:
    """Mean and spread over the splits, with all features."""
    row = tables.row("submodular_f1_means", data=data, features="1", method=method)
    several = int(row["draws"]) > 1
    spread = f" ± {float(row['spread']):.2g} ({row['draws']} splits)" if several else " (one split)"
    return f"{float(row['example_f1']):.3f}{spread}"


@counter
def yeast_pairs(tables: Tables) -> str:
    return _all_features(tables, "yeast", "SubmodularSVC")


@counter
def yeast_rml(tables: Tables) -> str:
    return _all_features(tables, "yeast", "RML")


@counter
def enron_pairs(tables: Tables) -> str:
    return _all_features(tables, "enron", "SubmodularSVC")


@counter
def enron_rml(tables: Tables) -> str:
    return _all_features(tables, "enron", "RML")


@counter
def enron_cut(tables: Tables) -> str:
    """What time ended in validation on enron with all features."""
    rows = tables.rows("submodular_f1", data="enron", features="1", method="SubmodularSVC")
    parts = [row["note"].partition(" fits in validation ") for row in rows if row["note"]]
    if not parts:
        return "no fit was cut"
    return f"on enron, split by split, {', '.join(cut for cut, _, _ in parts)} fits {parts[0][2]}"


@counter
def enron_without(tables: Tables) -> str:
    """In how many splits of enron, with all features, validation chooses no interaction."""
    rows = tables.rows("submodular_f1", data="enron", features="1", method="SubmodularSVC")
    return f"{sum(row['chosen'].endswith('interaction_scale=0') for row in rows)} of {len(rows)}"


@counter
def other_sets_difference(tables: Tables) -> str:
    """The largest mean difference, with all features, on the sets that the paper's figure 1 does not have."""
    rows = tables.rows("submodular_f1", features="1", method="RML")
    names = {row["data"] for row in rows} - {"yeast", "enron"}
    gains = [_pair_gains(tables, name, "1") for name in names]
    return f"{max(abs(sum(gain) / len(gain)) for gain in gains):.3f}"


@counter
def few_draws(tables: Tables) -> str:
    """How many splits stand behind the numbers with all features."""
    draws = Counter(row["data"] for row in tables.rows("submodular_f1", features="1", method="SubmodularSVC"))
    several = [f"{name} {n}" for name, n in draws.items() if n > 1]
    alone = [name for name, n in draws.items() if n == 1]
    told = [f"splits into training and test part: {', '.join(several)}"] if several else []
    told += [f"one split only for {', '.join(alone)}"] if alone else []
    return "; ".join(told).capitalize()


def _constant_set(tables: Tables, data: str) -> str:
    row = {"data": data, "features": "1", "method": "constant set"}
    return f"{tables.number('submodular_f1_means', 'example_f1', **row):.3f}"


@counter
def yeast_constant(tables: Tables) -> str:
    return _constant_set(tables, "yeast")


@counter
def enron_constant(tables: Tables) -> str:
    return _constant_set(tables, "enron")


@counter
def edges(tables: Tables) -> str:
    methods = ("SubmodularSVC", "RML", "binary relevance")
    rows = [row for row in tables.rows("submodular_f1") if row["method"] in methods]
    return f"{sum(bool(row['edge']) for row in rows)} of {len(rows)}"


def _inference(tables: Tables, column: str) -> list[float]:
    return [float(row[column]) for row in tables.rows("submodular_inference")]


@counter
def optimal_share(tables: Tables) -> str:
    shares = _inference(tables, "algorithm_2_optimal")
    return f"{sum(shares) / len(shares):.2f}"


@counter
def optimal_percent(tables: Tables) -> str:
    return f"{100 * float(optimal_share(tables)):.0f}"


@counter
def optimal_least(tables: Tables) -> str:
    return f"{min(_inference(tables, 'algorithm_2_optimal')):.2f}"


@counter
def inference_error(tables: Tables) -> str:
    return f"{max(_inference(tables, 'objective_error')):.4f}"


@counter
def inexact_above(tables: Tables) -> str:
    exact, other = (
        tables.number("submodular_inexact_training", "proven_objective", inference=name)
        for name in ("exact", "fixed_point")
    )
    return f"{100 * (other / exact - 1):.0f}"
