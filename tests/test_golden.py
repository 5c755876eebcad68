"""Bounds of two runs never cross: a dual value lies below every primal value of the same problem."""

import json

import pytest

from tests.golden import RECORD, cases, measure

RECORDED = json.loads(RECORD.read_text())
# Not compared: a latent fit has another majoriser in every round, a stream defines no problem before it ends,
# and the bound of a sparse machine holds for its own basis only.
CONVEX = ("multilabel", "multiclass", "chain", "submodular")
CASES = [case for case in cases() if case[0].startswith(CONVEX)]


def test_every_fit_is_recorded():
    assert {case[0] for case in cases()} == set(RECORDED)


@pytest.mark.parametrize(("name", "model", "arguments", "keywords"), CASES, ids=[case[0] for case in CASES])
def test_bounds_never_cross(name, model, arguments, keywords):
    found, recorded = measure(model, arguments, keywords), RECORDED[name]
    slack = 1e-9 * abs(recorded["primal"])
    assert found["dual"] <= recorded["primal"] + slack
    assert recorded["dual"] <= found["primal"] + slack
