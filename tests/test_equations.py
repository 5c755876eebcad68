"""The tables "equation -> function" of the models name functions whose docstrings cite the equation."""

import importlib
import inspect

import pytest

MODELS = ("multilabel", "structured", "ranking", "sparse", "submodular")
ENTRIES = [
    (model, equation, target)
    for model in MODELS
    for equation, target in importlib.import_module(f"maxmargin.{model}").EQUATIONS.items()
]


def resolve(model, target):
    module, *names = target.split(".")
    found = importlib.import_module(f"maxmargin.{model}.{module}")
    for name in names:
        found = getattr(found, name)
    return found


def test_every_paper_has_its_table():
    for model in MODELS:
        assert sum(entry[0] == model for entry in ENTRIES) >= 5, model


@pytest.mark.parametrize(("model", "equation", "target"), ENTRIES)
def test_a_search_for_the_number_finds_the_function(model, equation, target):
    found = resolve(model, target)
    documented = inspect.getdoc(getattr(found, "py_func", found)) or ""
    assert equation.partition(",")[0] in " ".join(documented.split())
