"""Pictures as SVG, in colours that stand on light and on dark paper."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from maxmargin.io.words import visible

_INK = "#808790"
HALF = (3.9, 2.6)
# Labels up to which a matrix names them.
NAMED = 26
_COLOURS = ("#2f81f7", "#d9730d", "#2da44e", "#a371f7", "#cf4a5c", "#1b9aaa")


def _figure(width: float, height: float) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg", force=False)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axis = figure.subplots()
    figure.patch.set_alpha(0)
    axis.patch.set_alpha(0)
    axis.tick_params(which="both", colors=_INK, labelsize=8)
    for spine in axis.spines.values():
        spine.set_color(_INK)
        spine.set_linewidth(0.6)
    for label in (axis.xaxis.label, axis.yaxis.label, axis.title):
        label.set_color(_INK)
        label.set_fontsize(9)
    return figure, axis


def _svg(figure: Any) -> bytes:
    import matplotlib

    out = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "maxmargin", "svg.fonttype": "path"}):
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def _legend(axis: Any, outside: bool = False) -> None:
    place = {"loc": "upper left", "bbox_to_anchor": (1, 1)} if outside else {}
    legend = axis.legend(frameon=False, fontsize=8, **place)
    for words in legend.get_texts():
        words.set_color(_INK)


def reliability(told: np.ndarray, seen: np.ndarray, counts: np.ndarray) -> list[bytes]:
    """How many of the labels told with a probability are true."""
    figure, axis = _figure(*HALF)
    axis.plot([0, 1], [0, 1], color=_INK, linewidth=0.6, linestyle=":", label="as many as told")
    axis.plot(told, seen, color=_COLOURS[0], linewidth=1)
    axis.scatter(told, seen, s=8 + 60 * np.sqrt(counts / counts.max()), color=_COLOURS[0])
    axis.set(xlabel="probability told", ylabel="share that is true", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    _legend(axis)
    return [_svg(figure)]


def sizes(given: np.ndarray, true: np.ndarray) -> list[bytes]:
    """How many samples have sets of each size, and how many have so many true labels."""
    figure, axis = _figure(*HALF)
    places = np.arange(max(given.max(), true.max()) + 1)
    for values, name, shift, colour in (
        (given, "labels in the set", -0.2, _COLOURS[0]),
        (true, "true labels", 0.2, _COLOURS[1]),
    ):
        axis.bar(places + shift, np.bincount(values, minlength=len(places)), 0.4, color=colour, label=name)
    axis.set(xlabel="number of labels", ylabel="test samples")
    _legend(axis)
    return [_svg(figure)]


def training(history: Sequence[Mapping[str, float]], tol: float | None) -> list[bytes]:
    """How far the primal and the dual objective can still be from the optimum, against time.

    The optimum lies between the best dual and the best primal objective; a distance is measured from the
    far end, so it is never told too small.
    """
    seconds, primal, dual = (
        np.array([record[key] for record in history], dtype=float) for key in ("seconds", "primal", "dual")
    )
    scale = abs(np.nanmin(primal))
    figure, axis = _figure(2 * HALF[0], HALF[1])
    above = (primal - np.nanmax(dual)) / scale
    below = (np.nanmin(primal) - dual) / scale
    for values, name, colour in ((above, "primal", _COLOURS[0]), (below, "dual", _COLOURS[1])):
        shown = np.isfinite(values) & (values > 0)
        axis.semilogy(
            seconds[shown], values[shown], color=colour, marker=".", markersize=4, label=f"{name} objective"
        )
    if tol:
        axis.axhline(tol, color=_INK, linewidth=0.6, linestyle=":", label="asked for")
    axis.set(xlabel="seconds", ylabel="distance from the optimum, at most")
    _legend(axis)
    return [_svg(figure)]


def growth(history: Sequence[Mapping[str, float]]) -> list[bytes]:
    """The objective against the number of basis vectors."""
    figure, axis = _figure(*HALF)
    # Models saved before "basis" was recorded counted basis vectors in "active".
    sizes = [record.get("basis", record["active"]) for record in history]
    axis.semilogy(
        sizes, [record["primal"] for record in history], color=_COLOURS[0], marker=".", markersize=4
    )
    axis.set(xlabel="basis vectors", ylabel="objective")
    return [_svg(figure)]


def f1_curve(truth: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Thresholds, from the highest on, and the F1 of predicting a label from each of them on."""
    order = np.argsort(-scores, kind="stable")
    at = scores[order]
    f1 = 2 * np.cumsum(truth[order]) / (np.arange(1, len(order) + 1) + max(truth.sum(), 1))
    last = np.append(at[1:] != at[:-1], True)  # equal scores can only be taken together
    return at[last], f1[last]


def thresholds(
    truth: np.ndarray, scores: np.ndarray, names: Sequence[str], chosen: np.ndarray, zero: bool
) -> list[bytes]:
    """F1 of each label against the score from which on it is predicted, with a dot at the chosen score.

    `zero` says whether the model itself predicts from 0 on.
    """
    figure, axis = _figure(5.4, 3.2)
    for k, name in enumerate(names):
        at, f1 = f1_curve(truth[:, k], scores[:, k])
        colour = _COLOURS[k % len(_COLOURS)]
        axis.plot(at, f1, color=colour, linewidth=1.2, label=_short(name))
        reached = float(f1[at > chosen[k]][-1]) if (at > chosen[k]).any() else 0.0
        axis.plot(chosen[k], reached, color=colour, marker="o", markersize=4)
    if zero:
        axis.axvline(0, color=_INK, linewidth=0.6, linestyle=":")
    axis.set(xlabel="threshold (0 is the model's own)" if zero else "threshold on the score", ylabel="F1")
    axis.set_ylim(-0.02, 1.02)
    _legend(axis, outside=True)
    return [_svg(figure)]


def correlations(matrices: Mapping[str, np.ndarray], names: Sequence[str]) -> list[bytes]:
    """Label-correlation matrices, on one scale from -1 to 1."""
    drawn = []
    for title, matrix in matrices.items():
        figure, axis = _figure(3.4, 3.4)
        axis.imshow(matrix, cmap=_scale(), vmin=-1, vmax=1)
        axis.set_title(title)
        _name_ticks(axis, names)
        drawn.append(_svg(figure))
    return drawn


def confusions(counts: np.ndarray, names: Sequence[str]) -> list[bytes]:
    """Shares of the truth (rows) that are predicted as each class (columns)."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgba

    size = _matrix_size(len(names))
    figure, axis = _figure(size, size)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    shades = LinearSegmentedColormap.from_list("shades", [to_rgba(_COLOURS[0], 0.12), to_rgba(_COLOURS[0])])
    axis.imshow(np.where(counts > 0, shares, np.nan), cmap=shades, vmin=0, vmax=1)
    _name_ticks(axis, names)
    axis.set(xlabel="predicted", ylabel="truth")
    if len(names) <= 12:
        for a, b in zip(*np.nonzero(counts), strict=True):
            ink = "white" if shares[a, b] > 0.5 else _INK
            axis.text(b, a, counts[a, b], ha="center", va="center", fontsize=7, color=ink)
    return [_svg(figure)]


def weights(matrix: np.ndarray, names: Sequence[str]) -> list[bytes]:
    """Signed weights between classes, white at zero."""
    size = _matrix_size(len(names))
    figure, axis = _figure(size + 0.6, size)
    most = float(np.abs(matrix).max()) or 1.0
    image = axis.imshow(matrix, cmap=_scale(), vmin=-most, vmax=most)
    _name_ticks(axis, names)
    bar = figure.colorbar(image, ax=axis, fraction=0.04, pad=0.02)
    bar.ax.tick_params(colors=_INK, labelsize=8)
    bar.outline.set_edgecolor(_INK)
    return [_svg(figure)]


def _matrix_size(labels: int) -> float:
    return min(2.6 + 0.14 * labels, 6.4)


def ranking(places: np.ndarray, n_labels: int) -> list[bytes]:
    """Places of the true labels, and the share of wrong first places as the stream goes on."""
    left, axis = _figure(*HALF)
    shown = min(n_labels, 20)
    counts = np.bincount(np.minimum(places, shown + 1), minlength=shown + 2)[1:]
    axis.bar(np.arange(1, shown + 2), counts / len(places), color=_COLOURS[0])
    axis.set(xlabel="place of the true label", ylabel="share of samples")
    ticks = [1, *range(5, shown, 5), shown + 1] if shown > 9 else range(1, shown + 2)
    axis.set_xticks(list(ticks), [str(k) if k <= shown else "later" for k in ticks])
    right, axis = _figure(*HALF)
    running = np.cumsum(places > 1) / np.arange(1, len(places) + 1)
    axis.plot(np.arange(1, len(places) + 1), running, color=_COLOURS[1])
    axis.set(xlabel="samples", ylabel="wrong first places so far", ylim=(0, 1))
    return [_svg(left), _svg(right)]


def _scale() -> Any:
    """Blue to red through white; grey where nothing is known."""
    import matplotlib
    from matplotlib.colors import to_rgba

    return matplotlib.colormaps["coolwarm"].with_extremes(bad=to_rgba(_INK, 0.35))


def _name_ticks(axis: Any, names: Sequence[str]) -> None:
    """Names beside a matrix of few labels."""
    if len(names) > NAMED:
        axis.set(xticks=[], yticks=[])
        return
    short = [_short(name, 12) for name in names]
    axis.set_xticks(range(len(names)), short, rotation=90, fontsize=6)
    axis.set_yticks(range(len(names)), short, fontsize=6)
    axis.tick_params(length=0)


def _short(name: str, letters: int = 20) -> str:
    words = visible(name).replace("$", "\\$")
    return words if len(words) <= letters else words[: letters - 1] + "…"
