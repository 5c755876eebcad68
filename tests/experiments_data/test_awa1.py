"""The recipe of awa1, on made files of the form in which the features are published."""

import bz2
import os
import pickle
import sys

import numpy as np
import pytest

from experiments.data import awa1
from maxmargin import datasets
from maxmargin.io.registry import folder, info, research_builders

CLASSES = ("ant", "blue+whale", "cat")
SIGNATURES = np.array([[1, 0], [0, 1], [1, 1]])


@pytest.fixture
def clone(tmp_path):
    """A clone with three classes of 2, 3 and 4 images, their files packed by different protocols."""
    place = tmp_path / "clone"
    (place / "code" / "feat").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for protocol, name in enumerate(CLASSES):
        features = rng.random((protocol + 2, 5))
        stored = features.tolist() if name == "cat" else features
        (place / "code" / "feat" / f"{name}-phog.pic.bz2").write_bytes(
            bz2.compress(pickle.dumps(stored, protocol))
        )
    for name, words in {"classes.txt": CLASSES, "predicates.txt": ("black", "weak")}.items():
        (place / name).write_text("".join(f"{k}\t{word}\n" for k, word in enumerate(words, 1)))
    (place / "trainclasses.txt").write_text("ant\ncat\n")
    (place / "testclasses.txt").write_text("blue+whale\n")
    for name in ("binary", "continuous"):
        np.savetxt(place / f"predicate-matrix-{name}.txt", SIGNATURES, "%d")
    (place / "README-attributes.txt").write_text("made\n")
    return place


def run(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["awa1", *map(str, words)])
    return awa1.main()


def test_the_data_set_is_made_where_load_finds_it(clone, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MAXMARGIN_DATA", str(tmp_path / "data"))
    assert run(monkeypatch, clone) == 0
    assert str(tmp_path / "data" / "awa1" / awa1.FEATURES) in capsys.readouterr().out
    data = research_builders()["awa1"](folder("awa1"))
    assert data.X.shape == (9, 5) and data.X.dtype == np.float32
    assert data.per_row["class_index"].tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 2]
    assert data.test.tolist() == [2, 3, 4] and data.label_names == ("black", "weak")
    np.testing.assert_array_equal(data.Y, SIGNATURES[data.per_row["class_index"]])
    np.testing.assert_allclose(data.X[:2], np.random.default_rng(0).random((2, 5)), rtol=1e-6)


class Harm:
    def __reduce__(self):
        return os.system, ("true",)


@pytest.mark.parametrize(
    "content",
    [
        bz2.compress(pickle.dumps(Harm())),
        bz2.compress(pickle.dumps(["words"])),
        bz2.compress(pickle.dumps([[np.nan]])),
        bz2.compress(pickle.dumps(np.zeros((2, 4)))),
        b"not packed",
        bz2.compress(b"\x80\x04"),
    ],
    ids=["a call", "words", "NaN", "another width", "not packed", "cut off"],
)
def test_files_that_hold_anything_else_are_refused(content, clone, tmp_path, monkeypatch, capsys):
    (clone / "code" / "feat" / "ant-phog.pic.bz2").write_bytes(content)
    assert run(monkeypatch, clone, "--output", tmp_path / "out") == 1
    assert capsys.readouterr().err.startswith("Error: ")
    assert not (tmp_path / "out" / awa1.FEATURES).exists()


def test_a_missing_file_is_named(clone, tmp_path, monkeypatch, capsys):
    (clone / "code" / "feat" / "cat-phog.pic.bz2").unlink()
    assert run(monkeypatch, clone, "--output", tmp_path / "out") == 1
    assert "cat-phog.pic.bz2" in capsys.readouterr().err


def test_the_registry_names_the_recipe(capsys):
    from maxmargin.cli import main

    assert "experiments.data.awa1" in datasets.info("awa1").recipe
    assert main(["datasets", "info", "awa1"]) == 0
    printed = capsys.readouterr().out
    assert "python -m experiments.data.awa1" in printed and "awa1/predicates.txt" in printed
    assert "code/feat/<class>-phog.pic.bz2" in printed and info("yeast").recipe is None
