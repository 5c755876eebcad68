"""`load` on the shipped data and, where MAXMARGIN_DATA points at them, on all known data sets."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin.datasets import Dataset, list_datasets, load, read_mulan
from maxmargin.io import registry
from maxmargin.io.files import text_lines
from maxmargin.io.registry import folder, research_builders, where
from maxmargin.io.shipped import SHIPPED

# name: samples, columns of X, labels or classes, training rows, test rows
SHAPES = {
    "20newsgroups": (18821, None, 20, 11293, 7528),
    "apascal-ayahoo-attributes": (15339, 4, 64, 6340, 2644),
    "awa1": (30475, 252, 85, 24295, 6180),
    "bibtex": (7395, 1836, 159, 4880, 2515),
    "birds": (645, 271, 19, 322, 323),
    "cal500": (502, 68, 174, None, None),
    "corel5k": (5000, 499, 374, 4500, 500),
    "delicious": (16105, 500, 983, 12920, 3185),
    "dna": (3186, 180, 3, 2000, 1186),
    "emotions": (593, 72, 6, 391, 202),
    "enron": (1702, 1001, 53, 1123, 579),
    "enron-folders/beck-s": (1966, 15870, 101, None, None),
    "enron-folders/farmer-d": (3669, 23246, 25, None, None),
    "enron-folders/kitchen-l": (3672, 27373, 38, None, None),
    "enron-folders/lokay-m": (2364, 23819, 11, None, None),
    "enron-folders/williams-w3": (2714, 14904, 18, None, None),
    "flags": (194, 43, 7, 129, 65),
    "genbase": (662, 1185, 27, 463, 199),
    "glass": (214, 9, 6, None, None),
    "iris": (150, 4, 3, None, None),
    "letter": (20000, 16, 26, 15000, 5000),
    "mediamill-reduced": (2000, 120, 101, 1500, 500),
    "mail-stream": (2364, 7046, 11, None, None),
    "medical": (978, 1449, 45, 333, 645),
    "mnist": (70000, 784, 10, 60000, 10000),
    "ocr-letters": (52152, 128, 26, 4617, 47535),
    "poker": (25010, 10, 10, 25010, None),
    "rcv1-subsets": (22490, 47236, 101, 11614, 10876),
    "reuters-r52": (9100, None, 52, 6532, 2568),
    "reuters-r8": (7674, None, 8, 5485, 2189),
    "reuters21578-modapte": (10788, None, 90, 7769, 3019),
    "satimage": (6435, 36, 6, 4435, 2000),
    "segment": (2310, 19, 7, None, None),
    "shuttle": (58000, 9, 7, 43500, 14500),
    "tmc2007-500": (28596, 500, 22, 21519, 7077),
    "vehicle": (846, 18, 4, None, None),
    "vowel": (990, 10, 11, 528, 462),
    "wine": (178, 13, 3, None, None),
    "yeast": (2417, 103, 14, 1500, 917),
    "yso-sample": (5998, 3678, 1019, 4500, 1498),
}
CARDINALITY = {  # mean number of labels per sample, as published with the Mulan sets
    "yeast": 4.237,
    "enron": 3.378,
    "emotions": 1.869,
    "bibtex": 2.402,
    "birds": 1.014,
    "genbase": 1.252,
    "medical": 1.245,
    "delicious": 19.020,
    "corel5k": 3.522,
    "tmc2007-500": 2.158,
    "cal500": 26.044,
    "flags": 3.392,
}
OFFLINE = ["emotions", "flags", "iris", "wine", "yeast", "yso-sample"]
SLOW = {"20newsgroups", "delicious", "bibtex", "tmc2007-500", "reuters21578-modapte"}

needs_data = pytest.mark.skipif(
    not os.environ.get("MAXMARGIN_DATA"), reason="set MAXMARGIN_DATA to the data directory"
)


def check(name: str, data: Dataset) -> None:
    n, d, n_labels, n_train, n_test = SHAPES[name]
    assert data.X.shape[0] == n and data.Y.shape[0] == n
    assert d is None or data.X.shape[1] == d
    assert len(data.feature_names) == data.X.shape[1]
    assert data.n_labels == n_labels
    assert (None if data.train is None else len(data.train)) == n_train
    assert (None if data.test is None else len(data.test)) == n_test
    if data.train is not None and data.test is not None:
        assert not np.intersect1d(data.train, data.test).size
    if data.multilabel:
        assert data.Y.shape[1] == n_labels and data.Y.dtype == np.int32
        assert set(np.unique(data.Y)) == {0, 1}
    else:
        assert tuple(str(c) for c in np.unique(data.Y)) == data.label_names
    if name in CARDINALITY:
        assert data.Y.sum() / n == pytest.approx(CARDINALITY[name], abs=6e-4)
    values = data.X.data if sp.issparse(data.X) else data.X
    assert np.isfinite(values).all()
    assert data.name == name and data.source and data.licence


@pytest.mark.parametrize("name", OFFLINE)
def test_small_data_load_without_any_file(name, monkeypatch, tmp_path):
    monkeypatch.delenv("MAXMARGIN_DATA", raising=False)
    monkeypatch.setenv("MAXMARGIN_CACHE", str(tmp_path))
    check(name, load(name))


@needs_data
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in SLOW else ())
        for name in sorted(set(SHAPES) - set(OFFLINE))
    ],
)
def test_known_data(name):
    check(name, load(name))


def test_every_known_table_is_described_and_tested():
    known = {*SHIPPED, *research_builders()}
    assert known == set(SHAPES)
    assert known <= set(registry.registry())


def test_only_what_can_be_had_is_listed(monkeypatch, tmp_path):
    monkeypatch.setenv("MAXMARGIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MAXMARGIN_DATA", str(tmp_path))
    listed = list_datasets()
    assert set(OFFLINE) <= set(listed) and "bibtex" in listed and "letter" not in listed
    for name in listed:
        about = registry.registry()[name]
        assert where(name) == ("comes with the package" if name in SHIPPED else "can be fetched")
        assert about.licence and all(len(file.sha256) == 64 for file in about.files)
    place = tmp_path / registry.registry()["letter"].files[0].path
    place.parent.mkdir()
    place.write_bytes(b"")
    assert where("letter") == str(place.parent) and "letter" in list_datasets()
    with pytest.raises(FileNotFoundError, match=r"'mnist'.*cannot be downloaded.*MAXMARGIN_DATA"):
        load("mnist")


def test_what_the_package_cannot_read_is_not_listed(monkeypatch, tmp_path):
    monkeypatch.setenv("MAXMARGIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MAXMARGIN_DATA", raising=False)
    monkeypatch.setattr("maxmargin.io.registry.research_builders", dict)
    assert "bibtex" in list_datasets() and "dna" not in list_datasets()


@needs_data
@pytest.mark.parametrize("name", ["emotions", "flags", "yeast"])
def test_shipped_equals_the_source_files(name, tmp_path):
    base = os.path.join(os.environ["MAXMARGIN_DATA"], name, name)
    for side in ("train", "test"):
        source = f"{base}-{side}.arff"
        source = source if os.path.exists(source) else f"{source}.xz"
        from_source, from_package = read_mulan(source, f"{base}.xml"), load(name, side)
        np.testing.assert_array_equal(from_source.X, from_package.X)
        np.testing.assert_array_equal(from_source.Y, from_package.Y)
        assert from_source.feature_names == from_package.feature_names
        assert from_source.label_names == from_package.label_names


@needs_data
def test_the_sample_of_titles_is_drawn_from_its_source():
    """Every title stands in the source with the subjects that the sample gives it."""
    sample, place = load("yso-sample"), folder("yso-titles")
    rows = (line.rstrip("\n").split("\t") for _, line in text_lines(place.file("labels.tsv"), "utf-8"))
    name = {row[0]: row[2] for row in rows}
    wanted = {text: i for i, text in enumerate(sample.per_row["text"])}
    found = 0
    for _, line in text_lines(place.file("texts.tsv"), "utf-8"):
        numbers, _, title = line.rstrip("\n").partition("\t")
        if title in wanted:
            mine = {sample.label_names[k] for k in np.flatnonzero(sample.Y[wanted[title]])}
            assert mine and mine <= {name[number] for number in numbers.split(",")}
            found += 1
        if found == 300:
            break
    assert found == 300


def test_split_sides_are_the_rows_of_the_whole():
    whole = load("yeast", "all")
    np.testing.assert_array_equal(whole.X, load("yeast").X)
    for side in ("train", "test"):
        part = load("yeast", side)
        np.testing.assert_array_equal(part.X, whole.X[getattr(whole, side)])
        np.testing.assert_array_equal(part.Y, whole.Y[getattr(whole, side)])
        assert part.train is None and part.test is None


def test_wrong_names_and_splits_say_what_is_right(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="Did you mean 'yeast'"):
        load("yeats")
    with pytest.raises(ValueError, match="split must be"):
        load("yeast", "validation")
    with pytest.raises(ValueError, match="without a train part"):
        load("iris", "train")
    with pytest.raises(ValueError, match="task must be one of"):
        list_datasets("regression")
    monkeypatch.delenv("MAXMARGIN_DATA", raising=False)
    monkeypatch.setenv("MAXMARGIN_CACHE", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"fetch\('bibtex'\).*MAXMARGIN_DATA"):
        load("bibtex")
    with pytest.raises(FileNotFoundError, match="set MAXMARGIN_DATA"):
        load("letter")


def test_y_is_Y_and_labels_are_counted():
    data = load("wine")
    assert data.y is data.Y and data.n_labels == 3 and not data.multilabel
    assert load("flags").multilabel


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """The package without the repository around it, and an empty data directory."""
    monkeypatch.setattr(registry, "research_builders", dict)
    monkeypatch.setenv("MAXMARGIN_DATA", str(tmp_path))
    monkeypatch.setenv("MAXMARGIN_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("name", ["poker", "medical", "enron-folders/beck-s"])
def test_without_the_repository_one_error_names_the_cure(installed, name):
    with pytest.raises(FileNotFoundError, match=r"experiments/data.*PYTHONPATH.*MAXMARGIN_DATA"):
        load(name)
    check("flags", load("flags"))


def test_without_the_repository_a_folder_laid_out_by_mulan_is_read(installed):
    (installed / "medical").mkdir()
    (installed / "medical" / "medical.xml").write_text('<labels><label name="l"/></labels>')
    for side, rows in (("train", "1,0\n2,1\n"), ("test", "3,1\n")):
        head = "@relation r\n@attribute x numeric\n@attribute l {0,1}\n@data\n"
        (installed / "medical" / f"medical-{side}.arff").write_text(head + rows)
    data = load("medical")
    assert data.X.ravel().tolist() == [1, 2, 3] and data.Y.ravel().tolist() == [0, 1, 1]
    assert data.test.tolist() == [2] and data.name == "medical"


def test_the_loaders_are_found_from_anywhere(tmp_path):
    """The command line runs elsewhere, but finds the loaders in the checkout of the package."""
    program = "from maxmargin.io.registry import research_builders; assert 'poker' in research_builders()"
    source = Path(registry.__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": str(source)}
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=env, check=True)
