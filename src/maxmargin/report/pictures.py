"""Pictures as SVG, in colours for light and dark pages. Labels of the y axis are titles, so they fit."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from maxmargin.io.words import visible

_INK = "#808790"
_COLOURS = ("#2f81f7", "#d9730d", "#2da44e", "#a371f7", "#cf4a5c", "#1b9aaa")
SIZE = (4.6, 2.9)
# Matrices with more labels than this have no names at their sides.
MAX_NAMED = 26


def _figure(width: float = SIZE[0], height: float = SIZE[1], x: str = "", y: str = "") -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg", force=False)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axis = figure.subplots()
    figure.patch.set_alpha(0)
    axis.patch.set_alpha(0)
    axis.tick_params(which="both", colors=_INK, labelsize=8)
    for name, spine in axis.spines.items():
        spine.set(color=_INK, linewidth=0.6, visible=name in ("left", "bottom"))
    axis.set_xlabel(x, color=_INK, fontsize=9)
    axis.set_title(y, color=_INK, fontsize=9, loc="left")
    return figure, axis


def _svg(figure: Any) -> bytes:
    import matplotlib

    out = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "maxmargin", "svg.fonttype": "path"}):
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def _legend(axis: Any, **options: Any) -> None:
    axis.legend(frameon=False, fontsize=8, labelcolor=_INK, **options)


def reliability(predicted: np.ndarray, seen: np.ndarray, counts: np.ndarray) -> list[bytes]:
    """Draw the share of true labels against the predicted probability."""
    figure, axis = _figure(x="predicted probability", y="share of true labels")
    axis.plot([0, 1], [0, 1], color=_INK, linewidth=0.6, linestyle=":", label="calibrated")
    errors = np.sqrt(seen * (1 - seen) / counts)
    axis.errorbar(predicted, seen, errors, color=_COLOURS[0], linewidth=1, elinewidth=0.6)
    axis.scatter(predicted, seen, s=8 + 60 * np.sqrt(counts / counts.max()), color=_COLOURS[0])
    axis.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    _legend(axis)
    return [_svg(figure)]


def sizes(given: np.ndarray, true: np.ndarray) -> list[bytes]:
    """Draw how many samples have sets, and true labels, of each size."""
    figure, axis = _figure(x="number of labels", y="test samples")
    numbers = np.arange(max(given.max(), true.max()) + 1)
    for values, name, shift, colour in (
        (given, "labels in the set", -0.2, _COLOURS[0]),
        (true, "true labels", 0.2, _COLOURS[1]),
    ):
        axis.bar(numbers + shift, np.bincount(values, minlength=len(numbers)), 0.4, color=colour, label=name)
    _legend(axis)
    return [_svg(figure)]


def training(history: Sequence[Mapping[str, float]], tol: float | None) -> list[bytes]:
    """Draw the largest possible distance of the best primal and dual objectives so far from the optimum.

    The optimum lies between the best dual and the best primal objective of the run, so the distance to
    the farther one is an upper bound.
    """
    seconds, primal, dual = (
        np.array([record[key] for record in history], dtype=float) for key in ("seconds", "primal", "dual")
    )
    primal, dual = np.fmin.accumulate(primal), np.fmax.accumulate(dual)
    scale = abs(np.nanmin(primal))
    figure, axis = _figure(x="seconds", y="distance from the optimum, at most")
    above, below = (primal - np.nanmax(dual)) / scale, (np.nanmin(primal) - dual) / scale
    for values, name, colour in ((above, "primal", _COLOURS[0]), (below, "dual", _COLOURS[1])):
        shown = np.isfinite(values) & (values > 0)
        axis.semilogy(
            seconds[shown], values[shown], color=colour, marker=".", markersize=4, label=f"{name} objective"
        )
    if tol:
        axis.axhline(tol, color=_INK, linewidth=0.6, linestyle=":", label="tol")
    _legend(axis)
    return [_svg(figure)]


def growth(history: Sequence[Mapping[str, float]]) -> list[bytes]:
    """Draw the objective against the number of basis vectors."""
    figure, axis = _figure(x="basis vectors", y="objective")
    # Older models recorded the number of basis vectors as "active".
    sizes = [record.get("basis", record["active"]) for record in history]
    primal = [record["primal"] for record in history]
    axis.semilogy(sizes, primal, color=_COLOURS[0], marker=".", markersize=4)
    return [_svg(figure)]


def label_f1(
    names: Sequence[str], own: np.ndarray, tuned: np.ndarray | None, constant: np.ndarray
) -> list[bytes]:
    """Draw the F1 of each label: as predicted, with a tuned threshold, and of a constant prediction."""
    figure, axis = _figure(SIZE[0], 0.9 + 0.24 * len(names), x="F1")
    rows = np.arange(len(names))
    axis.scatter(constant, rows, marker="|", s=50, color=_INK, label="constant")
    axis.scatter(own, rows, s=18, color=_COLOURS[0], label="as predicted")
    if tuned is not None:
        axis.hlines(rows, own, tuned, color=_COLOURS[1], linewidth=1)
        axis.scatter(tuned, rows, s=18, color=_COLOURS[1], label="tuned threshold")
    axis.set_yticks(rows, [_short(name) for name in names])
    axis.set(xlim=(-0.02, 1.02), ylim=(len(names) - 0.5, -0.5))
    _legend(axis, loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderpad=0, columnspacing=1)
    return [_svg(figure)]


def correlations(matrices: Mapping[str, np.ndarray], names: Sequence[str]) -> list[bytes]:
    """Draw label-correlation matrices, on a scale from -1 to 1."""
    drawn = []
    for title, matrix in matrices.items():
        figure, axis = _figure(3.4, 3.4, y=title)
        axis.imshow(matrix, cmap=_diverging(), vmin=-1, vmax=1)
        _name_ticks(axis, names)
        drawn.append(_svg(figure))
    return drawn


def confusions(counts: np.ndarray, names: Sequence[str]) -> list[bytes]:
    """Draw the shares of each true class (rows) that are predicted as each class (columns)."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgba

    size = _matrix_size(len(names))
    figure, axis = _figure(size, size, x="predicted", y="true class in rows")
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    shades = LinearSegmentedColormap.from_list("shades", [to_rgba(_COLOURS[0], 0.12), to_rgba(_COLOURS[0])])
    axis.imshow(np.where(counts > 0, shares, np.nan), cmap=shades, vmin=0, vmax=1)
    _name_ticks(axis, names)
    if len(names) <= 12:
        for a, b in zip(*np.nonzero(counts), strict=True):
            ink = "white" if shares[a, b] > 0.5 else _INK
            axis.text(b, a, counts[a, b], ha="center", va="center", fontsize=7, color=ink)
    return [_svg(figure)]


def weights(matrix: np.ndarray, names: Sequence[str]) -> list[bytes]:
    """Draw signed weights between classes, white at zero."""
    size = _matrix_size(len(names))
    figure, axis = _figure(size + 0.6, size)
    most = float(np.abs(matrix).max()) or 1.0
    image = axis.imshow(matrix, cmap=_diverging(), vmin=-most, vmax=most)
    _name_ticks(axis, names)
    bar = figure.colorbar(image, ax=axis, fraction=0.04, pad=0.02)
    bar.ax.tick_params(colors=_INK, labelsize=8)
    bar.outline.set_edgecolor(_INK)
    return [_svg(figure)]


def ranking(ranks: np.ndarray, n_labels: int) -> list[bytes]:
    """Draw the ranks of the true labels, and the share of wrong first labels as the stream goes on."""
    left, axis = _figure(x="rank of the true label", y="share of samples")
    shown = min(n_labels, 20)
    counts = np.bincount(np.minimum(ranks, shown + 1), minlength=shown + 2)[1:]
    axis.bar(np.arange(1, shown + 2), counts / len(ranks), color=_COLOURS[0])
    ticks = [1, *range(5, shown, 5), shown + 1] if shown > 9 else range(1, shown + 2)
    axis.set_xticks(list(ticks), [str(k) if k <= shown else "later" for k in ticks])
    right, axis = _figure(x="samples", y="share of wrong first labels so far")
    seen = np.arange(1, len(ranks) + 1)
    axis.plot(seen, np.cumsum(ranks > 1) / seen, color=_COLOURS[1])
    axis.set_ylim(bottom=0)
    return [_svg(left), _svg(right)]


def _matrix_size(labels: int) -> float:
    return min(2.6 + 0.14 * labels, 6.4)


def _diverging() -> Any:
    """Return a colour map from blue to red through white; grey for NaN."""
    import matplotlib
    from matplotlib.colors import to_rgba

    return matplotlib.colormaps["coolwarm"].with_extremes(bad=to_rgba(_INK, 0.35))


def _name_ticks(axis: Any, names: Sequence[str]) -> None:
    """Write the names beside a matrix of few labels."""
    if len(names) > MAX_NAMED:
        axis.set(xticks=[], yticks=[])
        return
    short = [_short(name, 12) for name in names]
    axis.set_xticks(range(len(names)), short, rotation=90, fontsize=6)
    axis.set_yticks(range(len(names)), short, fontsize=6)
    axis.tick_params(length=0)


def _short(name: str, letters: int = 20) -> str:
    words = visible(name).replace("$", "\\$")
    return words if len(words) <= letters else words[: letters - 1] + "…"
