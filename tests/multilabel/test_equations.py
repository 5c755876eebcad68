"""The table of the paper's equations leads to code that names them."""

import importlib
from functools import reduce

import pytest

from maxmargin.multilabel import EQUATIONS


@pytest.mark.parametrize("number", EQUATIONS)
def test_an_equation_is_found_where_the_table_says(number):
    module, *names = EQUATIONS[number].split(".")
    found = reduce(getattr, names, importlib.import_module(f"maxmargin.multilabel.{module}"))
    assert number in getattr(found, "py_func", found).__doc__
