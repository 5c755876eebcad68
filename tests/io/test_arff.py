"""ARFF and its label XML: the awkward files, faults with their place, round trips."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin.datasets import DataFormatError, Dataset, read_arff, read_label_xml, read_mulan, write_arff

HEAD = """% a comment
@RELATION 'odd: -C 2 name'

@Attribute 'body size' NUMERIC
@attribute sweet {0,1}
@attribute "kind of\\" thing" {red, 'light green', "blue, dark"}
@attribute alive {YES,NO}
@attribute bitter {0, 1}
@attribute one {a}
@ATTRIBUTE weight real
@data
"""
XML = """<?xml version="1.0" encoding="utf-8"?>
<labels xmlns="http://mulan.sourceforge.net/labels">
<label name="bitter"></label>
<label name="sweet"/>
</labels>
"""


def files(tmp_path, arff, xml=XML):
    (tmp_path / "a.arff").write_text(arff, encoding="utf-8", newline="")
    (tmp_path / "a.xml").write_text(xml, encoding="utf-8")
    return tmp_path / "a.arff", tmp_path / "a.xml"


def test_dense_rows_with_labels_in_the_middle(tmp_path):
    data = read_mulan(
        *files(
            tmp_path,
            HEAD + "1.5,1,'light green',YES,0,a,2 % 1\r\n% note\n\n -3e1 , 0 , \"blue, dark\",NO,1,a,?\n",
        )
    )
    assert data.label_names == ("sweet", "bitter")
    assert data.feature_names == (
        "body size",
        'kind of" thing=red',
        'kind of" thing=light green',
        'kind of" thing=blue, dark',
        "alive",
        "one",
        "weight",
    )
    np.testing.assert_array_equal(data.X, [[1.5, 0, 1, 0, 1, 0, 2], [-30, 0, 0, 1, 0, 0, np.nan]])
    np.testing.assert_array_equal(data.Y, [[1, 0], [0, 1]])
    assert data.Y.dtype == np.int32


def test_missing_nominal_values_and_label_entries(tmp_path):
    data = read_mulan(*files(tmp_path, HEAD + "?,?,?,?,1,?,1\n"))
    np.testing.assert_array_equal(data.X, [[np.nan] * 6 + [1]])
    np.testing.assert_array_equal(data.Y, [[np.nan, 1]])


def test_sparse_rows_take_the_first_value_when_left_out(tmp_path):
    data = read_mulan(*files(tmp_path, HEAD + "{0 2.5,1 1, 2 'light green',6 -1}\n{}\n{ 3 NO , 4 1 }\n"))
    assert sp.issparse(data.X) and sp.issparse(data.Y)
    np.testing.assert_array_equal(
        data.X.toarray(), [[2.5, 0, 1, 0, 1, 0, -1], [0, 1, 0, 0, 1, 0, 0], [0, 1, 0, 0, 0, 0, 0]]
    )
    np.testing.assert_array_equal(data.Y.toarray(), [[1, 0], [0, 0], [0, 1]])


def test_sparse_and_dense_rows_say_the_same(tmp_path):
    dense = read_mulan(*files(tmp_path, HEAD + "0,1,red,NO,0,a,4\n7,0,'blue, dark',YES,1,a,0\n"))
    sparse = read_mulan(*files(tmp_path, HEAD + "{1 1,3 NO,6 4}\n{0 7,2 'blue, dark',4 1}\n"))
    np.testing.assert_array_equal(dense.X, sparse.X.toarray())
    np.testing.assert_array_equal(dense.Y, sparse.Y.toarray())


@pytest.mark.parametrize("in_arff", ["TAG_m\\'usica", "'TAG_m\\'usica'", '"TAG_m\'usica"'])
@pytest.mark.parametrize("in_xml", ["TAG_m\\'usica", "TAG_m'usica"])
def test_escaped_quote_in_a_label_name(tmp_path, in_arff, in_xml):
    arff = f"@relation r\n@attribute x numeric\n@attribute {in_arff} {{0,1}}\n@data\n1,1\n2,0\n"
    data = read_mulan(*files(tmp_path, arff, f'<labels><label name="{in_xml}"/></labels>'))
    np.testing.assert_array_equal(data.Y, [[1], [0]])


def test_label_hierarchy(tmp_path):
    xml = (
        '<labels><label name="c"><label name="a"><label name="d"/></label></label><label name="b"/></labels>'
    )
    arff = "@relation r\n" + "".join(f"@attribute {n} {{0,1}}\n" for n in "abcdx") + "@data\n1,0,1,0,1\n"
    tree = read_label_xml(files(tmp_path, arff, xml)[1])
    assert tree.names == ("c", "a", "d", "b") and tree.parents == (-1, 0, 1, -1)
    data = read_mulan(*files(tmp_path, arff, xml))
    assert data.label_names == ("a", "b", "c", "d") and data.feature_names == ("x",)
    assert data.extras["label_parents"].tolist() == [2, -1, -1, 0]


def test_other_ways_to_name_the_labels(tmp_path):
    path, _ = files(tmp_path, HEAD + "1,1,red,YES,0,a,2\n")
    assert read_arff(path, label_prefix="bi", drop=["sweet"]).label_names == ("bitter",)
    rest = ['kind of" thing', "alive", "bitter", "one", "weight"]
    assert read_arff(path, labels="meka", drop=rest[:1]).label_names == ("body size", "sweet")
    y = read_arff(path, target="alive").Y
    assert y.tolist() == ["YES"]
    mixed = "@relation 'x: -C -1'\n@attribute a numeric\n@attribute b {0,1}\n@data\n1,1\n"
    assert read_arff(files(tmp_path, mixed)[0], labels="meka").label_names == ("b",)
    assert read_arff(path, target=1).Y.tolist() == [1]


@pytest.mark.parametrize(
    "arguments", [{}, {"target": "a", "labels": 1}, {"labels": "meka", "target": "a"}, {"labels": "sweet"}]
)
def test_labels_are_named_in_one_way(tmp_path, arguments):
    with pytest.raises(ValueError, match=r"exactly one|not one string"):
        read_arff(files(tmp_path, HEAD)[0], **arguments)


@pytest.mark.parametrize(
    ("arff", "line", "column", "message"),
    [
        (HEAD + "1,1,red,YES,0,a\n", 12, 6, "6 values for 7 attributes"),
        (HEAD + "x,1,red,YES,0,a,1\n", 12, 1, "'body size': 'x' is not a number"),
        (HEAD + "1,1,pink,YES,0,a,1\n", 12, 3, "'pink' is not one of its values"),
        (HEAD + "1,2,red,YES,0,a,1\n", 12, 2, "'2' is not a label entry"),
        (HEAD + "inf,1,red,YES,0,a,1\n", 12, 1, "not a finite number"),
        (HEAD + "1_0,1,red,YES,0,a,1\n", 12, 1, "not a number"),
        (HEAD + "1,1,'red,YES,0,a,1\n", 12, 5, "quote"),
        (HEAD + "1,1,'red' x,YES,0,a,1\n", 12, 11, "',' expected"),
        (HEAD + "{0 1,0 2}\n", 12, 2, "twice"),
        (HEAD + "{9 1}\n", 12, 1, "number of an attribute"),
        (HEAD + "{0 1,x 1}\n", 12, 2, "number of an attribute"),
        (HEAD + "{0 1,1 1\n", 12, 9, "expected"),
        (HEAD + "{0 1} 5\n", 12, 7, "unexpected"),
        (HEAD + "{0}\n", 12, 3, "a value expected"),
        (HEAD + "{0 1,,1 1}\n", 12, 6, "number"),
        (HEAD + "1,1,red,YES,0,a,1\n{0 1}\n", 13, 1, "mixed"),
        (HEAD, None, None, "no rows"),
        ("@relation r\n", None, None, "no @data"),
        ("@relation r\n@data\n", 2, 6, "before any @attribute"),
        ("hello\n", 1, 1, "expected"),
        ("@attribute x number\n@data\n", 1, 20, "not a type"),
        ("@attribute x numeric 5\n@data\n", 1, 22, "unexpected"),
        ("@attribute x relational\n@data\n", 1, 24, "not supported"),
        ("@attribute x {a,b\n@data\n", 1, 18, "expected"),
        ("@attribute x {a,a}\n@data\n", 1, 19, "twice"),
        ("@attribute x {}\n@data\n", 1, 15, "a nominal value expected"),
        ("@attribute\n@data\n", 1, 11, "name expected"),
        ("@attribute x real\n@attribute x real\n@data\n", 2, 18, "twice"),
        ("@attribute 'x real\n@data\n", 1, 12, "quote"),
        ("@attribute x real\n@data\n", 2, None, "'bitter' of the XML file is not an attribute"),
        (HEAD.replace("bitter {0, 1}", "bitter {0, 2}") + "1\n", 11, None, "label 'bitter': '2' is not"),
        (HEAD.replace("real", "string") + "1\n", 11, None, r"drop=\['weight'\]"),
    ],
)
def test_faults_name_their_place(tmp_path, arff, line, column, message):
    with pytest.raises(DataFormatError, match=message) as caught:
        read_mulan(*files(tmp_path, arff))
    assert (caught.value.line, caught.value.column) == (line, column)
    assert caught.value.path.endswith("a.arff")


def test_wrong_encoding_names_line_and_cure(tmp_path):
    path = tmp_path / "a.arff"
    path.write_bytes(
        "@relation r\n@attribute caf\xe9 {0,1}\n@attribute x numeric\n@data\n1,2\n".encode("latin-1")
    )
    with pytest.raises(DataFormatError, match="encoding=") as caught:
        read_arff(path, labels=-1)
    assert caught.value.line == 2
    assert read_arff(path, labels=-1, encoding="latin-1").label_names == ("café",)


def test_missing_class_is_refused(tmp_path):
    with pytest.raises(DataFormatError, match="value is missing"):
        read_arff(files(tmp_path, HEAD + "1,1,?,YES,0,a,2\n")[0], target='kind of" thing')


@pytest.mark.parametrize(
    ("xml", "line", "message"),
    [
        ('<!DOCTYPE x [<!ENTITY a "b">]>\n<labels><label name="&a;"/></labels>', 1, "document type"),
        ('<!DOCTYPE labels SYSTEM "http://example.org/x.dtd">\n<labels/>', 1, "document type"),
        ("<labels>\n<label/></labels>", 2, "without a name"),
        ("<labels>\n<tag name='a'/></labels>", 2, "<label> expected"),
        ("<label name='a'/>", 1, "<labels> expected"),
        ("<labels>\n<label name='a'/><label name='a'/></labels>", 2, "twice"),
        ("<labels></labels>", 1, "no <label"),
        ("<labels>\n<label name='a'></labels>", 2, "not XML"),
        ("<labels>\nwords<label name='a'/></labels>", 2, "unexpected text"),
        ("", 1, "not XML"),
        ('<?xml version="1.0" encoding="foo"?><labels/>', 1, "unknown encoding"),
        ('<?xml version="1.0" encoding="hex"?><labels/>', 1, "not a text encoding"),
        ('<?xml version="1.0" encoding="utf-7"?><labels/>', 1, "multi-byte"),
        ("<labels><label name='&unknown;'/></labels>", 1, "not XML"),
    ],
)
def test_xml_faults(tmp_path, xml, line, message):
    with pytest.raises(DataFormatError, match=message) as caught:
        read_label_xml(files(tmp_path, "", xml)[1])
    assert caught.value.line == line and caught.value.path.endswith("a.xml")


def test_an_entity_bomb_does_not_grow(tmp_path):
    bomb = "<!DOCTYPE b [<!ENTITY a0 'x'>" + "".join(
        f"<!ENTITY a{i} '{f'&a{i - 1};' * 10}'>" for i in range(1, 40)
    )
    with pytest.raises(DataFormatError, match="document type"):
        read_label_xml(files(tmp_path, "", bomb + "]><labels><label name='&a39;'/></labels>")[1])


def test_deep_nesting_is_read_without_recursion(tmp_path):
    n = 20_000
    xml = "<labels>" + "".join(f'<label name="l{i}">' for i in range(n)) + "</label>" * n + "</labels>"
    tree = read_label_xml(files(tmp_path, "", xml)[1])
    assert tree.parents == tuple(range(-1, n - 1))
    data = Dataset(
        np.zeros((1, 1)), np.zeros((1, n), int), ("x",), tree.names, extras={"label_parents": tree.parents}
    )
    write_arff(data, tmp_path / "b.arff", tmp_path / "b.xml")
    assert read_label_xml(tmp_path / "b.xml") == tree


def test_round_trip_of_classes(tmp_path):
    for sparse in (False, True):
        X = np.array([[0.0, 2.0], [1.0, 0.0], [0.0, 0.0]])
        y = np.array(["it's", "a, b", "it's"])
        data = Dataset(sp.csr_array(X) if sparse else X, y, ("u", "v"), ("a, b", "it's"))
        write_arff(data, tmp_path / "a.arff")
        again = read_arff(tmp_path / "a.arff", target="class")
        assert again.Y.tolist() == y.tolist() and again.label_names == data.label_names
        np.testing.assert_array_equal(again.X.toarray() if sparse else again.X, X)
    with pytest.raises(ValueError, match="one class per sample"):
        write_arff(data, tmp_path / "b.arff", tmp_path / "b.xml")
    with pytest.raises(ValueError, match="called '\\?'"):
        write_arff(Dataset(np.ones((1, 1)), np.array(["?"]), ("x",), ("?",)), tmp_path / "b.arff")
    assert not (tmp_path / "b.arff").exists()


def test_names_must_differ_to_be_written(tmp_path):
    with pytest.raises(ValueError, match="occurs twice"):
        write_arff(Dataset(np.ones((1, 1)), np.ones((1, 1)), ("a",), ("a",)), tmp_path / "a.arff")
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_labels_alone(tmp_path):
    for rows in ("1\n0\n", "{0 1}\n{}\n"):
        data = read_arff(files(tmp_path, "@relation r\n@attribute l {0,1}\n@data\n" + rows)[0], labels=1)
        assert data.X.shape == (2, 0) and data.Y.sum() == 1


def test_dense_rows_need_little_more_memory_than_the_matrix(tmp_path):
    width = 200
    path, _ = files(
        tmp_path,
        "@relation r\n"
        + "".join(f"@attribute x{j} numeric\n" for j in range(width))
        + "@attribute l {0,1}\n@data\n"
        + (",".join(["0.125"] * width) + ",1\n") * 2000,
    )
    tracemalloc.start()
    data = read_arff(path, labels=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert data.X.shape == (2000, width) and (data.X == 0.125).all()
    assert peak < 2.5 * data.X.nbytes
