"""How much memory there is."""

import pytest

from maxmargin.core import threads as module
from maxmargin.core.threads import memory
from maxmargin.edge.estimator import check_columns


@pytest.mark.parametrize(("said", "counts"), [("1000000\n", True), ("max\n", False)])
def test_the_limit_of_a_container_counts(tmp_path, monkeypatch, said, counts):
    machine = memory()
    assert machine > 2**28
    (tmp_path / "memory.max").write_text(said)
    monkeypatch.setattr(module, "LIMITS", (tmp_path / "memory.max", tmp_path / "none"))
    assert memory() == 1e6 if counts else memory() >= machine


def test_columns_that_fit_in_memory_are_taken(tmp_path, monkeypatch):
    (tmp_path / "memory.max").write_text("32000")
    monkeypatch.setattr(module, "LIMITS", (tmp_path / "memory.max",))
    check_columns(1000, n_weights=1)
    with pytest.raises(ValueError, match="X has 1,000 columns"):
        check_columns(1000, n_weights=2)
