"""A table of wrong calls: every message names what was given, where, and what cures it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.calibration import CalibratedClassifierCV
from sklearn.neighbors import KNeighborsClassifier

import maxmargin
from maxmargin import datasets, metrics, model_selection
from maxmargin.baselines import ThresholdTuner
from maxmargin.cli import main

X = np.random.RandomState(0).randn(24, 3)
Y = (X > 0).astype(int)
C = np.array(["a", "b", "c"])[np.arange(24) % 3]
BAD = X.copy()
BAD[4, 1] = np.nan
WIDE = sp.csr_array((np.ones(1), [9 * 10**15 - 1], [0] + [1] * 24), shape=(24, 9 * 10**15))
SETS = [{"a"}, {"b"}] * 12
CUT = {"lengths": np.full(8, 3)}
ml, mc, rank = maxmargin.MultiLabelSVC, maxmargin.MultiClassSVC, maxmargin.LabelRanker
sparse, sub, chain = maxmargin.SparseMultiClassSVC, maxmargin.SubmodularSVC, maxmargin.ChainSVC
latent, sparse_ml, stream = maxmargin.LatentSVC, maxmargin.SparseMultiLabelSVC, maxmargin.StreamRanker

# Wrong call -> pattern of the message.
PYTHON = {
    "ml: C of zero": (lambda: ml(C=0).fit(X, Y), r"'C' parameter of MultiLabelSVC .* Got 0"),
    "mc: C of a word": (lambda: mc(C="1").fit(X, C), r"'C' parameter of MultiClassSVC .* Got '1'"),
    "ml: unknown kernel": (lambda: ml(kernel="rbff").fit(X, Y), r"'kernel' parameter .*'rbf'.* Got 'rbff'"),
    "mc: unknown solver": (lambda: mc(solver="fast").fit(X, C), r"'solver' parameter .* Got 'fast'"),
    "mc: another solver's parameter": (
        lambda: mc(solver="bcfw", temperature=0.5, safeguard=False).fit(X, C),
        r"(temperature|safeguard)=.* is read by solver .* only",
    ),
    "mc: newton with a kernel": (
        lambda: mc(solver="newton", kernel="rbf").fit(X, C),
        r"needs kernel='linear'; leave solver at 'auto'",
    ),
    "mc: unknown parameter": (lambda: mc(c=1), r"unexpected keyword argument 'c'"),
    "ml: unknown parameter set": (lambda: ml().set_params(c=1), r"Invalid parameter 'c' for estimator MultiL"),
    "ml: no y": (lambda: ml().fit(X, None), r"target y is None; pass the labels"),
    "chain: no y": (lambda: chain().fit(X, None, **CUT), r"target y is None; pass the labels"),
    "ml: NaN in X": (lambda: ml().fit(BAD, Y), r"(?s)Input X contains NaN.*MultiLabelSVC"),
    "mc: a flat X": (lambda: mc().fit(X[:, 0], C), r"Expected 2D array, got 1D array"),
    "ml: words in X": (lambda: ml().fit([["red"], ["blue"]], [0, 1]), r"could not convert string to float: 'red'"),
    "ml: no rows": (lambda: ml().fit(X[:0], Y[:0]), r"Found array with 0 sample"),
    "ml: too few labels": (lambda: ml().fit(X, Y[:-1]), r"inconsistent numbers of samples: \[24, 23\]"),
    "mc: too few classes": (lambda: mc().fit(X, C[:-1]), r"X has 24 samples, but y has 23 classes"),
    "chain: too few labels": (lambda: chain().fit(X, C[:-1], **CUT), r"X has 24 rows, but y has 23 labels"),
    "mc: fractions for classes": (lambda: mc().fit(X, X[:, 0]), r"Unknown label type: continuous"),
    "mc: an indicator": (lambda: mc().fit(X, Y), r"y should be a 1d array, got .*\(24, 3\)"),
    "mc: sets": (lambda: mc().fit(X, SETS), r"y holds sets or lists .* takes one class per sample; use MultiLabelSVC"),
    "ml: numbers that are no labels": (lambda: ml().fit(X, Y + 1), r"binary indicator of 0/1 or of -1/\+1 .* holds 2"),
    "ml: mixed signs": (lambda: ml().fit(X, np.where(X > 1, 0, 2 * Y - 1)), r"mixes -1, 0 and 1"),
    "ml: a matrix of words": (lambda: ml().fit(X, np.array([["a"] * 3] * 24)), r"y is a matrix of <U1; pass 0/1"),
    "ml: a cube": (lambda: ml().fit(X, np.zeros((24, 2, 2))), r"got an array of shape \(24, 2, 2\)"),
    "ml: a word among sets": (lambda: ml().fit(X, [*SETS[:-1], "b"]), r"y\[23\] is 'b', .* write \['b'\]"),
    "ml: only empty sets": (lambda: ml().fit(X, [set()] * 24), r"y has no labels: every set is empty"),
    "ml: no label columns": (lambda: ml().fit(X, Y[:, :0]), r"y has no columns"),
    "sparse: no label columns": (lambda: sparse_ml().fit(X, sp.csr_array(Y[:, :0])), r"y has no columns"),
    "ml: too wide": (lambda: ml().fit(WIDE, Y), r"X has 9,000,000,000,000,000 columns, which need .* hash them"),
    "ml: a class that is missing": (lambda: ml().fit(X, [*C[:-1], None]), r"y\[23\] is None, .* needs a class"),
    "mc: a class that is missing": (lambda: mc().fit(X, pd.Series([float("nan"), *C[1:]])), r"y\[0\] is nan, .* needs a class"),
    "sub: C beyond floating point": (lambda: sub(C=1e300).fit(X, Y), r"C=1e\+300 is too large .* at most 1e\+60"),
    "rank: unknown labels": (lambda: rank().fit(X, [*SETS[:-1], None]), r"y\[23\] is None; a ranker needs"),
    "sub: unknown labels": (lambda: sub().fit(X, [*SETS[:-1], None]), r"y has unknown .* use MultiLabelSVC \(for F1 in baselines.ThresholdTuner\)"),
    "tuner: weights of another size": (lambda: ThresholdTuner(ml()).fit(X, Y, np.ones(3)), r"sample_weight.shape == \(3,\), expected \(24,\)"),
    "tree: weights that count nowhere": (
        lambda: maxmargin.TreeLabels(KNeighborsClassifier(), [(0, 1)]).fit(X, Y, np.ones(24)),
        r"KNeighborsClassifier takes no sample_weight in fit; leave the weights out",
    ),
    "metrics: nothing known": (lambda: metrics.micro_f1(Y * np.nan, Y), r"y_true has no known entry"),
    "ml: negative weights": (lambda: ml().fit(X, Y, -np.ones(24)), r"[Nn]egative values in data passed to `sample_weight`"),
    "mc: no weight at all": (lambda: mc().fit(X, C, np.zeros(24)), r"(sample_weight is zero for all samples|at least one non-zero)"),
    "ml: not fitted": (lambda: ml().predict(X), r"This MultiLabelSVC instance is not fitted yet"),
    "ml: other columns": (lambda: ml().fit(X, Y).predict(X[:, :2]), r"X has 2 features, but MultiLabelSVC is expecting 3"),
    "ml: other names": (
        lambda: ml().fit(pd.DataFrame(X, columns=list("pqr")), Y).predict(pd.DataFrame(X, columns=list("pqs"))),
        r"(?s)feature names.*s.*r",
    ),
    "ml: labels never seen": (lambda: ml().fit(X, SETS)._space.signs([{"z"}]), r"y\[0\] holds the label 'z'"),
    "ml: a prior of another size": (lambda: ml(prior=np.eye(2)).fit(X, Y), r"prior"),
    "ml: chi2 of negative features": (lambda: ml(kernel="chi2").fit(X, Y), r"Negative values"),
    "ml: a kernel that is not square": (lambda: ml(kernel="precomputed").fit(X, Y), r"kernel='precomputed', X must be the square matrix .* Got shape \(24, 3\)"),
    "ml: an entry that overflows": (lambda: ml().fit(X * 1e80, Y), r"X\[0, 0\] is .* scale the features"),
    "chain: lengths of another sum": (lambda: chain().fit(X, C, lengths=[3, 3]), r"lengths sum to 6, but X has 24 rows"),
    "chain: offsets for lengths": (lambda: chain().fit(X, C, lengths=[0, 12, 24]), r"offsets; pass np.diff"),
    "chain: an empty sequence": (lambda: chain().fit([X[:0], X], [C[:0], C]), r"X\[0\] is empty, .* remove it"),
    "chain: columns that differ": (lambda: chain().fit([X, X[:, :2]], [C, C]), r"X\[1\] has 2 features, but X\[0\] has 3"),
    "latent: a start that is none": (lambda: latent(init=[0]).fit(X, C[:8], **CUT), r"init must be a word or 8"),
    "rank: another kind of y": (
        lambda: rank().partial_fit(X, SETS).partial_fit(X, C), r"y must be a sequence of label sets"
    ),
    "rank: another width": (lambda: rank().partial_fit(X, Y).partial_fit(X[:, :2], Y), r"X has 2 features"),
    "rank: entropy that grows": (
        lambda: rank(regulariser="entropy", n_features="grow").fit(X, Y), r'n_features="grow" needs regulariser="squared"'
    ),
    "stream: NaN": (lambda: stream().learn_one({"x": float("nan")}, "a"), r"x\['x'\] is nan; .* finite number"),
    "stream: a fixed width": (lambda: stream(rank()), r'n_features="grow"'),
    "metrics: unknown scorer": (lambda: metrics.scorer("f2"), r"no scorer 'f2'; there are example_f1"),
    "metrics: shapes": (lambda: metrics.example_f1(Y, Y[:, :2]), r"y_true has shape \(24, 3\) but y_pred"),
    "split: classes": (lambda: next(model_selection.IterativeStratifiedKFold(2).split(X, C)), r"several labels per sample"),
    "split: one fold": (lambda: model_selection.IterativeStratifiedKFold(1), r"at least 2. Got 1"),
    "datasets: unknown name": (lambda: datasets.load("yeats"), r"No data set is called 'yeats'. Did you mean 'yeast'"),
    "datasets: unknown task": (lambda: datasets.list_datasets("regression"), r"task must be one of .* Got 'regression'"),
    "datasets: no such file": (lambda: datasets.read_csv("nowhere.csv", target="y"), r"nowhere.csv"),
    "save: calibration of scikit-learn": (lambda: maxmargin.save(CalibratedClassifierCV(ml()), "x.mm"), r"not a CalibratedClassifierCV; use maxmargin\.Calibrated"),
    "save: a search": (lambda: maxmargin.save(object(), "x.mm"), r"Only an estimator of maxmargin can be saved"),
    "load: no such file": (lambda: maxmargin.load("nowhere.mm"), r"nowhere.mm"),
    "prepare: an array": (lambda: maxmargin.prepare(X), r"table must be a data frame .* Got a ndarray"),
    "prepare: a date": (
        lambda: maxmargin.prepare(pd.DataFrame({"day": ["2024-01-02", "2024-01-03"]})), r"'day' holds dates .*drop"
    ),
    "prior: not symmetric": (lambda: ml(prior=np.triu(np.ones((3, 3)))).fit(X, Y), r"symmetric"),
    "ml: sparse y of twos": (lambda: ml().fit(X, sp.csr_array(2 * Y)), r"y is sparse and has values other than 0 and 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", PYTHON)
def test_a_wrong_call_names_the_mistake(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, message = PYTHON[case]
    with pytest.raises((ValueError, TypeError, OSError, AttributeError), match=message) as error:
        call()
    if isinstance(error.value, AttributeError):
        assert "not fitted" in str(error.value)


def malformed(matrix, kind):
    """Sparse rows with an index outside of them, which ends the process where it is followed."""
    broken = sp.csr_array(matrix).asformat(kind)
    broken.indices[3] = 10**8
    return broken


TREE = maxmargin.TreeLabels(ml(), [(0, 1)])
WRAPPERS = {
    "calibrated": maxmargin.Calibrated(ml(), cv=2),
    "label sets": maxmargin.LabelSets(ml(), calibration=2),
    "tree": TREE,
    "thresholds": ThresholdTuner(ml(), cv=2),
}


@pytest.mark.parametrize("kind", ["csr", "csc"])
@pytest.mark.parametrize("name", WRAPPERS)
def test_wrappers_refuse_malformed_sparse_matrices(name, kind):
    model, X_bad, Y_bad = WRAPPERS[name], malformed(X, kind), malformed(Y, kind)
    with pytest.raises(ValueError, match="X is a malformed"):
        model.fit(X_bad, Y)
    with pytest.raises(ValueError, match="y is a malformed"):
        model.fit(X, Y_bad)
    model.fit(sp.csr_array(X), Y)
    methods = ("predict", "decision_function", "predict_proba")
    calls = [getattr(model, method) for method in methods if hasattr(model, method)]
    if name == "calibrated":
        calls.append(lambda rows: model.predict_proba(rows, top=2))
    for call in calls:
        with pytest.raises(ValueError, match="X is a malformed"):
            call(X_bad)


@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_functions_refuse_malformed_sparse_matrices(kind):
    broken, square = malformed(Y, kind), malformed(np.eye(3) + 1, kind)
    for call in (
        lambda: metrics.example_f1(broken, Y),
        lambda: metrics.example_f1(sp.csr_array(Y), broken),
        lambda: metrics.precision_at_k(sp.csr_array(Y), broken),
        lambda: maxmargin.priors.from_labels(broken),
        lambda: maxmargin.priors.from_graph(square),
        lambda: ml(prior=square).fit(X, Y),
        lambda: model_selection.iterative_train_test_split(X, broken),
        lambda: model_selection.iterative_train_test_split(broken, Y),
        lambda: next(model_selection.IterativeStratifiedKFold(2).split(X, broken)),
        lambda: chain().fit([sp.csr_array(X[:3]), malformed(X[:3], kind)], [C[:3], C[:3]]),
    ):
        with pytest.raises(ValueError, match="is a malformed"):
            call()


TABLE = "size,colour,kind,tags,red\n" + "1,red,a,x;y,1\n2,blue,b,,0\n" * 6
# Command line -> exit code, part of the message.
COMMANDS = {
    "fot t.csv": (2, "No such command 'fot'"),
    "fit": (2, "Name exactly one DATA"),
    "fit t.csv -m multiclass": (2, "-o FILE"),
    "fit t.csv -o m.mm": (2, "t.csv: name the columns of labels with --target, --labels or --label-prefix"),
    "fit t.csv -o m.mm --target kinds": (1, "no column is called 'kinds' (1 absent); did you mean 'kind'?"),
    "fit t.csv -o m.mm --target kind --labels tags": (1, "exactly one of target, labels and label_prefix"),
    "fit t.csv -o m.mm --target kind -m multilabel": (1, "has one class per sample, but --model multilabel takes several"),
    "fit t.csv -o m.mm --target kind -m forest": (2, "'forest' is not one of 'multilabel'"),
    "fit t.csv -o m.mm --target kind -m chain": (1, "--model chain needs sequences"),
    "fit t.csv -o m.mm --target kind --c 1": (2, "--c is no option and no parameter of MultiClassSVC. Did you mean --C?"),
    "fit t.csv -o m.mm --target kind --C x": (2, "'C' parameter of MultiClassSVC"),
    "fit t.csv -o m.mm --target kind --drop colours": (1, "to drop, no column is called 'colours' (1 absent); did you mean 'colour'"),
    "fit t.csv -o m.mm --target kind --text kind": (1, "column 'kind' holds the labels"),
    "fit t.csv -o m.mm --target kind --numbers colour": (1, "column 'colour': 'red' is not a number"),
    "fit t.csv -o m.mm --target kind --text size --numbers size": (1, "'size' is named as a number and a text"),
    "fit t.csv -o m.mm --target kind --scale maxabs": (2, "--scale maxabs is for numbers only"),
    "fit t.csv -o m.mm --labels tags --separator=": (2, "--separator is empty; give the text between tags"),
    "fit t.csv -o m.mm --labels tags --tree circle.csv": (2, "--tree: circle.csv: edges contain a cycle through 'x'"),
    "fit untagged.csv -o m.mm --labels tags": (1, "column 'tags' has no tags"),
    "fit missing.csv -o m.mm --target kind": (1, "missing.csv, line 3, column 2: the class is missing; fill it in or delete the row"),
    "fit quote.csv -o m.mm --target kind": (1, "quote.csv, line 3: a field that begins in this row has a quote that is never closed"),
    "fit none.svm -o m.mm": (1, "none.svm has no labels; write the labels of a sample at the start of its line"),
    "fit wide.svm -o m.mm": (1, "wide.svm has 9,000,000,000,000,000 columns, which need"),
    "fit zero.svm -o m.mm": (1, "pass zero_based=True (--zero-based)"),
    "fit t.csv -o m.mm --labels colour,kind": (1, "is not a label entry (0 or 1)"),
    "fit t.csv -o nowhere/m.mm --target kind": (2, "There is no directory"),
    "fit u.csv -o m.mm --target kind": (2, "no file and no known data set 'u.csv'"),
    "fit yeats -o m.mm": (2, "Did you mean the data set yeast?"),
    "fit mnist -o m.mm": (1, "MAXMARGIN_DATA"),
    "fit t.dat -o m.mm": (2, "the extension does not tell the format; give --format"),
    "fit t.json -o m.mm": (2, "write one object per line and give --format jsonl"),
    "fit t.xlsx -o m.mm": (2, "save the sheet as CSV"),
    "fit - -o m.mm": (2, "Data on stdin needs --format"),
    "fit empty.csv -o m.mm --target kind": (1, "the file is empty"),
    "fit ragged.csv -o m.mm --target kind": (1, "ragged.csv, line 3, column 3: 3 fields, but the first line has 2"),
    "fit twice.csv -o m.mm --target kind": (1, "column name 'a' occurs twice"),
    "fit latin.csv -o m.mm --target kind": (1, "pass another encoding (encoding=, or --encoding)"),
    "fit date.csv -o m.mm --target kind": (1, "--drop day (drop=) leaves it out"),
    "fit t.csv -o m.mm --target kind --encoding utf-9": (1, "'utf-9' is not an encoding"),
    "fit bad.jsonl -o m.mm --labels tags": (1, "bad.jsonl, line 1: not a JSON object"),
    "fit t.csv.parquet -o m.mm --target kind": (1, "not a readable Parquet file"),
    "fit --parameters": (2, "--parameters needs a model family: give -m"),
    "fit iris -o m.mm --split test": (2, "iris does not come with a test part"),
    "predict m.mm t.csv": (1, "There is no model file m.mm; create one with `maxmargin fit DATA -m ... -o m.mm`"),
    "predict t.csv t.csv": (1, "t.csv is not a whole model file"),
    "predict k.mm iris": (1, "iris holds numbers only, but the model was fitted on a table with words"),
    "predict k.mm t.csv --to xml": (2, "'xml' is not one of"),
    "predict k.mm t.csv --to svmlight": (2, "use csv, jsonl or same"),
    "predict k.mm narrow.csv": (1, "no column is called 'size'"),
    "report k.mm t.csv -o nowhere/r.html": (1, "nowhere"),
    "compare t.csv -m multiclass --target kind --folds 1": (2, "1 is not in the range x>=2"),
    "datasets fetch mnist": (1, "mnist cannot be downloaded"),
    "datasets convert iris iris.txt": (2, "the name must end in .csv, .parquet, .arff or .svm"),
    "datasets convert t.csv o.csv --target kind": (1, "--drop colour"),
    "datasets list --task regression": (1, "task must be one of"),
    "export k.mm k.tflite": (2, "the name of an ONNX file must end in .onnx"),
    "reproduce": (2, "--repository"),
    "warmup forest": (2, "'forest' is not one of"),
}  # fmt: skip
FILES = {
    "t.csv": TABLE.encode(), "t.dat": b"1", "empty.csv": b"", "ragged.csv": b"a,kind\n1,x\n1,2,x\n",
    "twice.csv": b"a,a,kind\n1,2,x\n", "latin.csv": b"a,kind\n1,\xe9\n", "bad.jsonl": b"{\n",
    "date.csv": b"day,kind\n2024-01-02,x\n2024-01-03,y\n", "t.csv.parquet": b"PAR1", "narrow.csv": b"colour\nred\n",
    "t.json": b"[]", "t.xlsx": b"PK", "circle.csv": b"x,y\ny,x\n",
    "untagged.csv": b"a,tags\n1,\n2,\n", "missing.csv": b"a,kind\n1,x\n2,\n", "quote.csv": b'a,kind\n1,x\n"2,y\n3,y\n',
    "zero.svm": b"1 0:1\n", "none.svm": b"1:1\n2:1\n", "wide.svm": b"1 9000000000000000:1\n2 1:1\n",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("wrong")
    for name, content in FILES.items():
        (place / name).write_bytes(content)
    assert (
        main(
            ["fit", str(place / "t.csv"), "--target", "kind", "--drop", "tags,red", "-o", str(place / "k.mm")]
        )
        == 0
    )
    return place


@pytest.mark.parametrize("line", COMMANDS)
def test_a_wrong_command_names_the_mistake(line, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.delenv("MAXMARGIN_DATA", raising=False)
    monkeypatch.setenv("MAXMARGIN_CACHE", str(folder / "cache"))
    code, message = COMMANDS[line]
    assert main(line.split()) == code, capsys.readouterr().err
    printed = capsys.readouterr()
    error = printed.err.strip().splitlines()[-1]
    assert error.startswith("Error: ") and message in error, error
    assert not printed.out and not (folder / "m.mm").exists()
