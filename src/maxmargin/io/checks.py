"""What a restored model must satisfy before anything is computed with it.

The compiled loops trust the sizes of a fitted model's arrays, so a file must not be able to
break them. What goes through numpy alone is checked there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from maxmargin.io.model_errors import ModelFileError


def check(model: Any) -> None:
    """Check that the arrays of a restored estimator or part of one fit together."""
    rule = _RULES.get(type(model).__name__)
    if rule is not None:
        rule(vars(model))


def _latent(state: dict[str, Any]) -> None:
    if "coef_" in state:
        K = _vector(state, "classes_")
        _shape(state, "coef_", (K, _whole(state, "n_features_in_")))
        _shape(state, "intercept_", (K,))
        if not isinstance(state.get("_groups_of_one"), bool):
            raise ModelFileError("it does not say whether its samples are single rows")


def _chain(state: dict[str, Any]) -> None:
    _latent(state)
    if "coef_" in state:
        K = _vector(state, "classes_")
        _shape(state, "transitions_", (K, K))
        _shape(state, "first_", (K,))
        _shape(state, "last_", (K,))


def _submodular(state: dict[str, Any]) -> None:
    if "coef_" not in state:
        return
    V = len(state["intercept_"])
    _shape(state, "intercept_", (V,))
    _shape(state, "coef_", (V, _whole(state, "n_features_in_")))
    _shape(state, "interaction_", (V, V))
    if not (np.isfinite(state["interaction_"]).all() and (state["interaction_"] >= 0).all()):
        raise ModelFileError("its interaction_ holds something else than attractions")


def _ranker(state: dict[str, Any]) -> None:
    if "_state" not in state:
        return
    learnt = vars(state["_state"])
    labels = _vector(state, "classes_")
    if _whole(learnt, "n_labels") != labels or len(state["_labels"].index) != labels:
        raise ModelFileError("its labels and its weights differ in number")


def _ranking_state(state: dict[str, Any]) -> None:
    """Slots point into the weights, and the weights have room for every label."""
    columns, labels = _whole(state, "used"), _whole(state, "n_labels")
    slots = state["slots"]
    if not isinstance(slots, np.ndarray) or slots.dtype != np.int32:
        raise ModelFileError("its slots are not whole numbers")
    _shape(state, "slots", (_whole(state, "n_features"),))
    if slots.size and not (slots.min() >= -1 and slots.max() < columns):
        raise ModelFileError("its slots point beyond its weights")
    _shape(state, "threshold", (3,))
    if "counts" in state:
        _shape(state, "counts", (_whole(state, "n_features") if state.get("rarity") else 0,))
        if state["counts"].dtype != np.int64 or not (state["counts"] >= 0).all():
            raise ModelFileError("its counts are not whole numbers")
        _whole(state, "counted")
    names = ("W",) if "W" in state else ("theta", "v")
    room = state[names[0]].shape
    if len(room) != 2 or room[0] < columns or room[1] < labels:
        raise ModelFileError("its weights have no room for its labels")
    for name in names[1:] + (("weighted",) if state.get("average") else ()):
        _shape(state, name, room)
    if "theta" in state:
        for name in ("c", "z", "slack"):
            _shape(state, name, room[1:])


_RULES: dict[str, Callable[[dict[str, Any]], None]] = {
    "ChainSVC": _chain,
    "EntropyState": _ranking_state,
    "LabelRanker": _ranker,
    "LatentSVC": _latent,
    "SquaredState": _ranking_state,
    "SubmodularSVC": _submodular,
}


def _vector(state: dict[str, Any], name: str) -> int:
    value = state[name]
    if not isinstance(value, np.ndarray) or value.ndim != 1:
        raise ModelFileError(f"its {name} is not a vector")
    return len(value)


def _whole(state: dict[str, Any], name: str) -> int:
    value = state[name]
    if type(value) is not int or value < 0:
        raise ModelFileError(f"its {name} is not a whole number")
    return value


def _shape(state: dict[str, Any], name: str, shape: tuple[int, ...]) -> None:
    value = state[name]
    if not isinstance(value, np.ndarray) or value.shape != shape or value.dtype.kind not in "biuf":
        raise ModelFileError(f"its {name} is not an array of numbers of shape {shape}")
