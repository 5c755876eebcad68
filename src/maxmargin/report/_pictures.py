"""Pictures as SVG, in colours that stand on light and on dark paper."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_INK = "#808790"
_COLOURS = ("#2f81f7", "#d9730d", "#2da44e", "#a371f7", "#cf4a5c", "#1b9aaa")


def _figure(width: float, height: float, columns: int = 1) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg", force=False)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, columns, squeeze=False)[0]
    figure.patch.set_alpha(0)
    for axis in axes:
        axis.patch.set_alpha(0)
        axis.tick_params(colors=_INK, labelsize=8)
        for spine in axis.spines.values():
            spine.set_color(_INK)
            spine.set_linewidth(0.6)
        for label in (axis.xaxis.label, axis.yaxis.label, axis.title):
            label.set_color(_INK)
            label.set_fontsize(9)
    return figure, axes


def _svg(figure: Any) -> bytes:
    import matplotlib

    out = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "maxmargin", "svg.fonttype": "path"}):
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def _legend(axis: Any) -> None:
    legend = axis.legend(frameon=False, fontsize=8)
    for words in legend.get_texts():
        words.set_color(_INK)


def training(history: Sequence[Mapping[str, float]]) -> bytes:
    """Objectives and gap of every epoch against time."""
    seconds = [record["seconds"] for record in history]
    figure, (left, right) = _figure(7.2, 2.7, 2)
    left.plot(seconds, [record["primal"] for record in history], color=_COLOURS[0], label="primal")
    dual = [record["dual"] for record in history]
    if np.isfinite(dual).any():
        left.plot(seconds, dual, color=_COLOURS[1], label="dual")
    left.set(xlabel="seconds", ylabel="objective")
    _legend(left)
    gaps = np.array([record["gap"] for record in history], dtype=float)
    shown = np.isfinite(gaps) & (gaps > 0)
    if shown.any():
        right.semilogy(np.array(seconds)[shown], gaps[shown], color=_COLOURS[2], marker=".", markersize=3)
    right.set(xlabel="seconds", ylabel="relative duality gap")
    return _svg(figure)


def thresholds(truth: np.ndarray, scores: np.ndarray, names: Sequence[str]) -> bytes:
    """F1 of each label against the score from which on it is predicted."""
    figure, (axis,) = _figure(7.2, 2.9)
    for k, name in enumerate(names):
        order = np.argsort(-scores[:, k], kind="stable")
        right = np.cumsum(truth[order, k])
        f1 = 2 * right / (np.arange(1, len(order) + 1) + max(truth[:, k].sum(), 1))
        axis.plot(scores[order, k], f1, color=_COLOURS[k % len(_COLOURS)], linewidth=1.2, label=name)
    axis.axvline(0, color=_INK, linewidth=0.6, linestyle=":")
    axis.set(xlabel="predict the label from this score on (0 is the model's own choice)", ylabel="F1")
    _legend(axis)
    return _svg(figure)


def correlations(matrices: Mapping[str, np.ndarray]) -> bytes:
    """Label-correlation matrices side by side, on one scale from -1 to 1."""
    figure, axes = _figure(2.5 * len(matrices) + 0.4, 2.5, len(matrices))
    image = None
    for axis, (title, matrix) in zip(axes, matrices.items(), strict=True):
        image = axis.imshow(matrix, cmap="coolwarm", vmin=-1, vmax=1)
        axis.set_title(title)
        axis.set(xticks=[], yticks=[])
    bar = figure.colorbar(image, ax=list(axes), fraction=0.046, pad=0.02)
    bar.ax.tick_params(colors=_INK, labelsize=8)
    return _svg(figure)
