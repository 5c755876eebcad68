"""Small files that expand: read in proportion to their size, or refused with DataFormatError."""

import io
import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

import maxmargin
from maxmargin import datasets
from maxmargin.io.chunks import stream_arff
from maxmargin.io.dataset import word_array
from maxmargin.io.mixed import Source, read_mixed
from maxmargin.io.table import LabelColumns
from maxmargin.tables import kind_of_values

HEAD = b"@relation r\n@attribute l {0,1}\n"
# Limits for reading one file, beyond the imported libraries.
MEGABYTES, SECONDS = 300, 20
# Reads every file of a list in one process, with new limits for each of them.
PROGRAM = """
import json, resource, sys
from maxmargin.cli import main
from maxmargin.datasets import *
from maxmargin.io.mixed import Source, read_mixed
from maxmargin.io.table import LabelColumns
from maxmargin.tables import kind_of_values
import pyarrow.parquet, scipy.sparse, sklearn.datasets
def table(kind, **where):
    return read_mixed(Source(path, kind), LabelColumns(**where), kind_of_values, kinds={})
hard = resource.getrlimit(resource.RLIMIT_AS)[1]
for path, read in json.load(sys.stdin):
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (MEGABYTES << 20), hard))
    spent = int(sum(resource.getrusage(0)[:2]))
    resource.setrlimit(resource.RLIMIT_CPU, (spent + SECONDS, resource.RLIM_INFINITY))
    try:
        data = eval(read)
        print("read", data.X.shape[0], type(data.Y).__name__, data.Y.dtype, flush=True)
    except DataFormatError as error:
        print("refused", error, flush=True)
    data = None
"""


def parquet(table, **how):
    stored = io.BytesIO()
    pq.write_table(pa.table(table), stored, store_schema=False, **how)
    return stored.getvalue()


def repeated(word, times):
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(times, np.int32)), pa.array([word]))


def nominal(count, values=b"x,y,z"):
    return b"".join(b"@attribute a%d {%s}\n" % (k, values) for k in range(count))


WIDE = b"@attribute a {" + b",".join(b"%d" % k for k in range(20_000)) + b"}\n"
LONG = b"k" * 130_000
# How a file is read, its content, and the expected outcome.
FILES = {
    "arff: a nominal attribute of many values": (
        "read_arff(path, labels=['l'])", lambda: HEAD + WIDE + b"@data\n" + b"0,1\n" * 60_000, "read 60000"),
    "arff: many values that are missing": (
        "read_arff(path, labels=['l'])", lambda: HEAD + WIDE + b"@data\n" + b"0,?\n" * 60_000, "refused"),
    "arff: the same in sparse rows": (
        "read_arff(path, labels=['l'])", lambda: HEAD + WIDE + b"@data\n" + b"{1 ?}\n" * 60_000, "refused"),
    "arff: attributes left out": (
        "read_arff(path, labels=['l'])",
        lambda: HEAD + nominal(5000) + b"@data\n" + b"{}\n" * 100_000, "refused"),
    "arff: labels left out": (
        "read_arff(path, labels=4000)",
        lambda: HEAD + nominal(4000, b"1,0") + b"@data\n" + b"{}\n" * 100_000, "refused"),
    "arff: a long name": (
        "read_arff(path, labels=['l'])",
        lambda: HEAD + WIDE.replace(b" a ", b" " + LONG + b" ") + b"@data\n0,1\n", "refused"),
    "arff: many labels": (
        "read_arff(path, labels=20000)",
        lambda: HEAD + nominal(20_000, b"0,1") + b"@data\n" + b"{}\n" * 1000, "read 1000"),
    "arff: a long class": (
        "read_arff(path, target='c')",
        lambda: HEAD + b"@attribute c {a," + LONG + b"}\n@data\n" + b"1,a\n" * 60_000, "read 60000"),
    "csv: a long class": (
        "read_csv(path, target=0)",
        lambda: b"c,x\n" + LONG + b",1\n" + b"a,1\n" * 60_000, "read 60001 ndarray object"),
    "table: a long class": (
        "table('csv', target='c')",
        lambda: b"c,x\n" + LONG + b",u\n" + b"a,v\n" * 60_000, "read 60001 ndarray object"),
    "table: a tag of its own in every row": (
        "table('csv', labels=['t'])",
        lambda: b"x,t\n" + b"".join(b"1,t%d\n" % k for k in range(40_000)), "read 40000 csr_array int32"),
    "json lines: a key of its own in every row": (
        "table('jsonl', target='c')",
        lambda: b"".join(b'{"c":1,"k%d":1}\n' % k for k in range(25_000)), "refused"),
    "parquet: runs": (
        "read_parquet(path, target='c')",
        lambda: parquet(dict.fromkeys("xc", np.zeros(20_000_000, np.int8))), "refused"),
    "parquet: runs in a table of words": (
        "table('parquet', target='c')",
        lambda: parquet(dict.fromkeys("xc", np.zeros(20_000_000, np.int8))), "refused"),
    "parquet: a long word in every row": (
        "table('parquet', target='c')",
        lambda: parquet({"c": np.zeros(9000, np.int8), "x": repeated("k" * 50_000, 9000)}), "refused"),
    "parquet: a long class in every row": (
        "read_parquet(path, target='c')",
        lambda: parquet({"x": np.zeros(9000, np.int16), "c": repeated("k" * 50_000, 9000)}), "read 9000"),
    "parquet: a long list": (
        "table('parquet', labels=['t'])",
        lambda: parquet({"x": ["u"], "t": pa.ListArray.from_arrays([0, 10**7], pa.nulls(10**7, pa.int8()))}),
        "refused"),
    "xc: labels that the first line claims": ("read_xc(path)", lambda: b"1 5 100000000\n0 0:1\n", "refused"),
}  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="limits of a process as Linux has them")
def test_memory_and_time_stay_in_proportion_to_the_file(tmp_path):
    jobs = []
    for k, (read, content, _) in enumerate(FILES.values()):
        path = tmp_path / f"{k}"
        path.write_bytes(content())
        assert path.stat().st_size < 512 << 10
        jobs.append((str(path), read))
    program = PROGRAM.replace("MEGABYTES", str(MEGABYTES)).replace("SECONDS", str(SECONDS))
    done = subprocess.run(
        [sys.executable, "-c", program], input=json.dumps(jobs), capture_output=True, text=True, check=False
    )
    answers = done.stdout.splitlines()
    failed = f"{list(FILES)[len(answers) % len(FILES)]}: {done.stderr[-500:]}"
    assert done.returncode == 0 and len(answers) == len(FILES), failed
    for (name, (_, _, expected)), (path, _), answer in zip(FILES.items(), jobs, answers, strict=True):
        assert answer.startswith(expected) and len(answer) < 1000, (name, answer[:500])
        assert expected != "refused" or path in answer, name


def read_table(path, kind):
    return read_mixed(Source(path, kind), LabelColumns(target="c"), kind_of_values, kinds={})


FAULTS = {
    "a word": ({"c": ["a", "b"], "x": ["qqqq", "w"]}, b"qqqq", b"\xff" * 4),
    "a class": ({"c": ["qqqq", "b"], "x": [1.0, 2.0]}, b"qqqq", b"\xff" * 4),
    "the name of a column": ({"c": ["a", "b"], "qqqq": [1.0, 2.0]}, b"qqqq", b"\xff" * 4),
    "a date": ({"c": ["a", "b"], "x": pa.array([2**30, 1], pa.int32()).cast(pa.date32())}, b"", b""),
    "a time": ({"c": ["a", "b"], "x": pa.array([2**62, 1]).cast(pa.timestamp("us"))}, b"", b""),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_parquet_files_are_format_errors(fault, tmp_path):
    table, old, new = FAULTS[fault]
    path = tmp_path / "t.parquet"
    path.write_bytes(parquet(table, compression="none").replace(old or b"\0\0\0\0none", new))
    with pytest.raises(datasets.DataFormatError, match=r"t\.parquet"):
        datasets.read_parquet(path, target="c")
    with pytest.raises(datasets.DataFormatError, match=r"t\.parquet"):
        read_table(path, "parquet")


def test_a_number_too_large_for_a_float_is_a_fault(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"c": "a", "n": 1}\n{"c": "b", "n": ' + "9" * 400 + "}\n")
    with pytest.raises(datasets.DataFormatError, match=r"line 2: column 'n': .* is not a finite number"):
        read_table(path, "jsonl")


def test_sparse_columns_of_nominal_values_are_the_dense_ones(tmp_path):
    values = [str(k) for k in range(100)]
    header = f"@relation r\n@attribute a {{{','.join(values)}}}\n@attribute l {{0,1}}\n@data\n"
    path = tmp_path / "wide.arff"
    path.write_text(header + "7,1\n99,0\n?,1\n")
    data = datasets.read_arff(path, labels=["l"])
    assert sp.issparse(data.X) and data.feature_names[7] == "a=7" and data.Y.tolist() == [[1], [0], [1]]
    rows = data.X.toarray()
    assert rows[0].nonzero()[0].tolist() == [7] and rows[1].nonzero()[0].tolist() == [99]
    assert np.isnan(rows[2]).all()
    (chunk,) = stream_arff(path, data.feature_names)
    np.testing.assert_array_equal(chunk.toarray(), rows)


def test_long_words_are_objects_and_a_model_takes_them():
    words = ["red"] * 8 + ["blue" * 300_000] * 2 + ["red"] * 50
    assert word_array(words).dtype == object and word_array(words[:3]).dtype.kind == "U"
    X = np.random.default_rng(0).normal(size=(60, 2))
    model = maxmargin.MultiClassSVC().fit(X, word_array(words))
    assert set(model.predict(X)) <= set(words)
