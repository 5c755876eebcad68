"""Data sets put together from tiny files in the layout of the real ones."""

import io
import struct
import tarfile

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin.datasets import DataFormatError, load


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Writes files below a data directory that MAXMARGIN_DATA names."""
    monkeypatch.setenv("MAXMARGIN_DATA", str(tmp_path))

    def write(files):
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())

    return write


def idx(array) -> bytes:
    array = np.asarray(array, dtype=np.uint8)
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


MNIST = {
    "mnist/train-images-idx3-ubyte": idx(np.arange(12).reshape(3, 2, 2)),
    "mnist/train-labels-idx1-ubyte": idx([3, 1, 4]),
    "mnist/t10k-images-idx3-ubyte": idx(np.arange(4).reshape(1, 2, 2) + 200),
    "mnist/t10k-labels-idx1-ubyte": idx([9]),
}


def test_mnist(place):
    place(MNIST)
    data = load("mnist")
    np.testing.assert_array_equal(data.X, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [200, 201, 202, 203]])
    assert data.X.dtype == np.float32 and data.y.tolist() == [3, 1, 4, 9]
    assert load("mnist", "test").y.tolist() == [9]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train-images-idx3-ubyte", b"\x00\x00\x08\x01", "not an idx file"),
        ("train-images-idx3-ubyte", idx(np.zeros((3, 2, 2)))[:-1], "11 values"),
        ("train-labels-idx1-ubyte", idx([1, 2]), "3 images but 2 labels"),
    ],
)
def test_mnist_faults(place, name, content, message):
    place(MNIST | {f"mnist/{name}": content})
    with pytest.raises(DataFormatError, match=message):
        load("mnist")


def test_rcv1_is_pooled_without_duplicates(place):
    files = {"rcv1-subsets/labels.txt": "E1\nE2\nE3\n"}
    halves = {  # document "0 1:1" is in a test half and, later in the files' order, in a training half
        "1_train": "0 1:0.5\n1,2 2:1\n",
        "1_test": "0 1:1\n1 9:1\n",
        "2_train": "1,2 2:1\n0 1:1\n",
        "2_test": "1 9:1\n2 47236:1\n",
        "3_train": "0 1:0.5\n",
        "3_test": " 4:1\n",
        "4_train": "0 3:1\n",
        "4_test": "0 3:1\n",
    }
    place(files | {f"rcv1-subsets/rcv1subset{key}.svm": text for key, text in halves.items()})
    data = load("rcv1-subsets")
    assert data.X.shape == (7, 47236) and data.label_names == ("E1", "E2", "E3")
    np.testing.assert_array_equal(data.X[:, [0, 1, 2, 3, 8, 47235]].toarray(), [
        [0.5, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0],
        [0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 1], [0, 0, 0, 1, 0, 0],
    ])  # fmt: skip
    assert data.train.tolist() == [0, 1, 2, 3] and data.test.tolist() == [4, 5, 6]
    np.testing.assert_array_equal(data.Y[[1, 6]], [[0, 1, 1], [0, 0, 0]])


def awa(place, **changed):
    buffer = io.BytesIO()
    np.savez(buffer, X=np.arange(12, dtype=np.float32).reshape(4, 3), y=np.array([0, 2, 1, 0]))
    files = {
        "awa1_phog_float32.npz": buffer.getvalue(),
        "classes.txt": "  1\tcat\n 2\tdog\n 3\tant\n",
        "predicates.txt": " 1\tblack\n 2\tfurry\n",
        "predicate-matrix-binary.txt": "0 1\n1 1\n1 0\n",
        "predicate-matrix-continuous.txt": "-1.00 50\n1 2\n3 4\n",
        "trainclasses.txt": "cat\nant\n",
        "testclasses.txt": "dog\n",
    }
    place({f"awa1/{name}": content for name, content in (files | changed).items()})


def test_awa1(place):
    awa(place)
    data = load("awa1")
    np.testing.assert_array_equal(data.Y, [[0, 1], [1, 0], [1, 1], [0, 1]])
    assert data.train.tolist() == [0, 1, 3] and data.test.tolist() == [2]
    assert data.label_names == ("black", "furry") and data.extras["class_names"] == ("cat", "dog", "ant")
    assert data.extras["train_classes"].tolist() == [0, 2] and data.extras["test_classes"].tolist() == [1]
    assert data.extras["signatures_continuous"][0].tolist() == [-1, 50]
    part = load("awa1", "test")
    assert part.per_row["class_index"].tolist() == [1] and part.X.dtype == np.float32


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("awa1_phog_float32.npz", b"PK", "npz"),
        ("classes.txt", "1\tcat\n3\tdog\n", "'2 name' expected"),
        ("trainclasses.txt", "cow\n", "'cow' is not in"),
        ("predicate-matrix-binary.txt", "0 1\n1 1\n", "2 rows, expected 3"),
        ("predicate-matrix-binary.txt", "0 1\n1 1\n1 x\n", "could not convert"),
        ("predicate-matrix-binary.txt", "0 1 1\n1 1\n1 1\n", "3 values, expected 2"),
    ],
)
def test_awa1_faults(place, name, content, message):
    awa(place, **{name: content})
    with pytest.raises(DataFormatError, match=message):
        load("awa1")


APASCAL = {
    "attribute_names.txt": "2D Boxy\nRound\n",
    "class_names.txt": "dog\nmug\n",
    "apascal_train.txt": "a.jpg dog 1 2 3 4 0 1\n",
    "apascal_test.txt": "b.jpg dog 5 6 7 8 1 1\n",
    "ayahoo_test.txt": "c.jpg mug 1 1 2 2 0 0\n",
}


def test_apascal(place):
    place({f"apascal-ayahoo-attributes/{name}": text for name, text in APASCAL.items()})
    data = load("apascal-ayahoo-attributes")
    np.testing.assert_array_equal(data.Y, [[0, 1], [1, 1], [0, 0]])
    np.testing.assert_array_equal(data.X[1], [5, 6, 7, 8])
    assert (data.train.tolist(), data.test.tolist()) == ([0], [2])
    assert data.per_row["class_index"].tolist() == [0, 0, 1]


def test_tab_texts_learn_their_words_from_the_training_part(place):
    head = "Category\tText\nd\tstring\nclass\t\n\n"
    place(
        {
            "reuters-r8/reuters-r8-train.tab": head
            + "b\tgold coin gold\na\tgold wheat\nb\tcoin wheat rare\n",
            "reuters-r8/reuters-r8-test.tab": head + "a\twheat unseen unseen\n",
        }
    )
    data = load("reuters-r8")
    assert data.feature_names == ("coin", "gold", "wheat")  # in two training texts or more
    assert data.y.tolist() == ["b", "a", "b", "a"] and data.label_names == ("a", "b")
    assert data.per_row["text"][3] == "wheat unseen unseen"
    np.testing.assert_allclose(sp.linalg.norm(data.X, axis=1), 1)
    idf = np.log(4 / 3) + 1  # each word is in two of three training texts
    first = np.array([1.0, 1 + np.log(2), 0]) * idf
    np.testing.assert_allclose(data.X[[0]].toarray()[0], first / np.linalg.norm(first))
    assert (data.train.tolist(), data.test.tolist()) == ([0, 1, 2], [3])


def tar(files) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


REUTERS = {
    "reuters/cats.txt": "test/11 corn\ntraining/2 corn acq\ntraining/10 acq\n",
    "reuters/training/10": "gold mine gold mine",
    "reuters/training/2": "gold corn mine",
    "reuters/test/11": "corn corn gold",
}


def test_reuters_modapte(place):
    place({"reuters21578-modapte/reuters.tar": tar(REUTERS)})
    data = load("reuters21578-modapte")
    assert data.per_row["text"].tolist() == ["gold corn mine", "gold mine gold mine", "corn corn gold"]
    assert data.label_names == ("acq", "corn")
    np.testing.assert_array_equal(data.Y, [[1, 1], [1, 0], [0, 1]])
    assert (data.train.tolist(), data.test.tolist()) == ([0, 1], [2])


@pytest.mark.parametrize(
    "content", [b"no tar at all", tar(REUTERS | {"reuters/cats.txt": "test/99 x\n"}), tar({"reuters/x": "y"})]
)
def test_reuters_faults(place, content):
    place({"reuters21578-modapte/reuters.tar": content})
    with pytest.raises(DataFormatError):
        load("reuters21578-modapte")


def test_mulan_parts_must_have_the_same_columns(place):
    head = "@relation r\n@attribute {} numeric\n@attribute l {{0,1}}\n@data\n1,0\n2,1\n"
    xml = '<labels><label name="l"/></labels>'
    files = {"medical/medical.xml": xml, "medical/medical-train.arff": head.format("x")}
    place(files | {"medical/medical-test.arff": head.format("x")})
    assert load("medical").X.ravel().tolist() == [1, 2, 1, 2]
    place(files | {"medical/medical-test.arff": head.format("y")})
    with pytest.raises(DataFormatError, match="columns differ"):
        load("medical")


def test_tables_of_classes(place):
    rows = "1,2,b\n3,4,a\n"
    place(
        {
            "vehicle/vehicle.csv": "u,v,Class\n" + rows,
            "vowel/vowel.train.csv": "y,x.1\n2,0.5\n1,1.5\n",
            "vowel/vowel.test.csv": "y,x.1\n3,2.5\n",
            "satimage/sat.trn": "1 2 3\n",
            "satimage/sat.tst": "4 5 7\n",
            "segment/segment.dat": "1.0 2.0 7\n",
            "segment/segmentation.data": ";;; x\nREGION-A,REGION-B\n\n",
            "poker/poker-hand-training-true.data": "1,10,1,11,1,13,1,12,1,1,9\n",
            "ocr-letters/letter.data": "1\ta\t-1\t1\t1\t0\t1\t0\t\n",
        }
    )
    assert load("vehicle").y.tolist() == ["b", "a"]
    vowel = load("vowel")
    assert vowel.y.tolist() == [2, 1, 3] and vowel.label_names == ("1", "2", "3")
    assert load("satimage", "test").X.tolist() == [[4, 5]]
    assert load("segment").feature_names == ("REGION-A", "REGION-B")
    assert load("poker").feature_names[:2] == ("suit1", "rank1") and load("poker").y.tolist() == [9]
    assert load("ocr-letters").per_row["word"].tolist() == [0]
