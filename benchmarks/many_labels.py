"""Tens of thousands of labels: `MultiLabelSVC` in blocks beside the tools of extreme classification.

    MAXMARGIN_DATA=... python -m benchmarks.many_labels cut                # 40,000 titles, 13,000 subjects
    MAXMARGIN_DATA=... python -m benchmarks.many_labels full --jobs 2      # 653,485 titles, 25,147 subjects
    python -m benchmarks.many_labels generated --labels 1000000 --texts 20000 --part 50000   # memory flat
    python -m benchmarks.many_labels cut --peer omikuji --python /venv-omikuji/bin/python
    python -m benchmarks.many_labels cut --choose-C                        # and the fit with the C it chose
    python -m benchmarks.many_labels cut --peer constant                   # the most frequent labels for all
    MAXMARGIN_DATA=... python -m benchmarks.many_labels pruning            # the effect of pruning weights

A peer runs in the environment of its own interpreter, on the same features, with this file as a script. It
returns five labels per test text. Each run is one row of results/many_labels.csv: P@1/3/5, nDCG@5, PSP@5,
CPU seconds of training, CPU milliseconds of prediction for 1,000 texts, size of the model, peak memory above
that of the data (both in MB), and for our models the certified gap. Times are comparable only if the load of
the machine is that of the jobs alone. C is chosen by P@1 on a tenth of the training texts; this is not in
the time. `--part` fits so many labels at a time and writes their weights to a file.

Only `cut` has test texts. In `full` and `generated` the 10,000 predicted texts are training texts, so their
P@k, nDCG@5 and PSP@5 do not measure generalisation; these problems measure time and memory.
`benchmarks/tried/multilabel.md` lists what was tried.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

# The C to choose from.
CHOICES = (0.3, 1.0, 3.0)
RESULTS = Path(__file__).parent / "results" / "many_labels.csv"
TEST = 10_000
# One of so many labels is trained where all would take too long.
SAMPLED = 100


def titles(folder: Path) -> tuple[list[str], sp.csr_array]:
    """The texts of yso-titles and their subjects."""
    import lzma

    texts, labels = [], []
    with lzma.open(folder / "yso-titles" / "texts.tsv.xz", "rt", encoding="utf-8") as lines:
        for line in lines:
            ids, text = line.rstrip("\n").split("\t", 1)
            texts.append(text)
            labels.append(np.array(ids.split(","), dtype=np.int64))
    indptr = np.concatenate([[0], np.cumsum([len(ids) for ids in labels])])
    indices = np.concatenate(labels)
    return texts, sp.csr_array((np.ones(len(indices), np.int8), indices, indptr))


def text_problem(folder: Path, small: bool) -> tuple[sp.csr_array, ...]:
    """Training and test features and labels: the cut of 40,000 texts with three labels, or all texts.

    With all texts in training, those of the test are among them.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts, Y = titles(folder)
    rng = np.random.RandomState(0)
    if small:
        order = rng.permutation(np.flatnonzero(np.diff(Y.indptr) >= 3))[: 40_000 + TEST]
        train, test = order[:40_000], order[40_000:]
        Y = Y[:, np.bincount(Y[train].indices, minlength=Y.shape[1]) >= 5]
    else:
        train = np.arange(len(texts))
        test = rng.permutation(len(texts))[:TEST]
    words = TfidfVectorizer(sublinear_tf=True, min_df=1 if small else 2, dtype=np.float32)
    X = words.fit_transform([texts[i] for i in train])
    return X, Y[train], words.transform([texts[i] for i in test]), Y[test]


def made_problem(n_labels: int, n: int) -> tuple[sp.csr_array, ...]:
    """Generate texts of five words related to their subjects and five random words; five texts per label.

    The texts do not depend on the number of labels. The test texts are training texts.
    """
    rng = np.random.RandomState(0)
    n_words, per_label = 100_000, 5
    topics = rng.randint(0, n_words, (n, 1)) + rng.randint(0, 50, (n, 5))
    words = np.hstack([topics % n_words, (n_words * rng.rand(n, 5) ** 3).astype(np.int64)])
    values = (rng.rand(words.size) + 0.5).astype(np.float32)
    X = sp.csr_array((values, (np.repeat(np.arange(n), 10), words.ravel())), shape=(n, n_words))
    X = sp.csr_array(X.multiply(1 / np.sqrt(X.multiply(X).sum(axis=1))[:, None]).astype(np.float32))
    # A label belongs to texts of neighbouring topics.
    near = np.argsort(topics[:, 0], kind="stable")
    at = rng.randint(0, n - 20, (n_labels, 1)) + np.argsort(rng.rand(n_labels, 20), axis=1)[:, :per_label]
    pairs = near[at].ravel(), np.repeat(np.arange(n_labels), per_label)
    Y = sp.csr_array((np.ones(len(pairs[0]), np.int8), pairs), shape=(n, n_labels))
    test = rng.permutation(n)[:TEST]
    return X, Y, X[test], Y[test]


def ours(X, Y, E, options) -> tuple[np.ndarray, dict]:
    """`MultiLabelSVC`; the loops are compiled by a small fit before."""
    from maxmargin import MultiLabelSVC

    given = {"C": options.C, "tol": options.tol, "loss": options.loss, "n_jobs": options.jobs}
    if options.choose_C:
        given["C"] = chosen(X, Y, given)
    model = MultiLabelSVC(memory_limit=64, random_state=0, **given)
    small = MultiLabelSVC(memory_limit=0, random_state=0, **given).fit(X[:500], _frequent(Y[:500]))
    small.predict_top(E[:2], 5)
    if options.part:
        return in_parts(X, Y, E, model, options.part)
    start = time.process_time()
    model.fit(X, Y)
    trained = time.process_time()
    top, _ = model.predict_top(E, 5)
    told = {"gap": model.duality_gap_, "model MB": (model.coef_.nnz * 12) / 1e6, "C": model.C}
    return top, told | _times(start, trained, E)


def in_parts(X, Y, E, model, size: int) -> tuple[np.ndarray, dict]:
    """Fit some labels after the others, keep their weights in files, and the best five labels of all."""
    rows, Y = np.arange(E.shape[0])[:, None], Y.tocsc()
    top, best = np.zeros((len(rows), 0), int), np.zeros((len(rows), 0))
    primal = dual = train = predict = stored = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for first in range(0, Y.shape[1], size):
            start = time.process_time()
            model.fit(X, sp.csr_array(Y[:, first : first + size]))
            trained = time.process_time()
            labels, scores = model.predict_top(E, 5)
            top, best = np.hstack([top, first + labels]), np.hstack([best, scores])
            order = np.argsort(-best, axis=1, kind="stable")[:, :5]
            top, best = top[rows, order], best[rows, order]
            train, predict = train + trained - start, predict + time.process_time() - trained
            primal, dual = primal + model.primal_objective_, dual + model.dual_objective_
            file = Path(folder) / f"{first}.npz"
            sp.save_npz(file, model.coef_, compressed=False)
            stored += file.stat().st_size / 1e6
    told = {"gap": 1 - dual / primal, "model MB": stored, "C": model.C}
    return top, told | {"train s": train, "predict ms/1000": 1e6 * predict / len(rows)}


def chosen(X, Y, given: dict) -> float:
    """The C with the highest P@1 on a tenth of the training texts."""
    from maxmargin import MultiLabelSVC

    order = np.random.RandomState(1).permutation(X.shape[0])
    held, rest = np.split(order, [X.shape[0] // 10])
    seen = np.flatnonzero(np.bincount(Y[rest].indices, minlength=Y.shape[1]))

    def precision(C: float) -> float:
        model = MultiLabelSVC(memory_limit=64, random_state=0, **given | {"C": C})
        first, _ = model.fit(X[rest], Y[rest][:, seen]).predict_top(X[held], 1)
        return float(Y[held][:, seen][np.arange(len(held)), first[:, 0]].mean())

    found = {C: precision(C) for C in CHOICES}
    print("P@1 of a tenth of the training texts:", found)
    return max(found, key=lambda C: found[C])


def pruning(X, Y) -> None:
    """Gaps of every 200th label when all weights up to a size are dropped, and the part that is kept."""
    from maxmargin import MultiLabelSVC

    Y = sp.csr_array(Y[:, ::200])
    model = MultiLabelSVC(memory_limit=0, prune_below=0, random_state=0).fit(X, Y)
    W, b, signs = model.coef_.toarray(), model.intercept_, 2.0 * Y.toarray() - 1
    for size in (0.01, 0.003, 0.001):
        kept = np.where(np.abs(W) > size, W, 0)
        loss = np.maximum(0, 1 - signs * (X @ kept.T + b)).sum()
        primal = 0.5 * (np.sum(kept**2) + np.sum(b**2)) + loss
        part = np.count_nonzero(kept) / np.count_nonzero(W)
        print(f"up to {size}: {part:.0%} kept, gap {1 - model.dual_objective_ / primal:.1e}")


def constant(X, Y, E, options) -> tuple[np.ndarray, dict]:
    """The five most frequent labels for every text."""
    top = np.argsort(-np.bincount(Y.indices, minlength=Y.shape[1]), kind="stable")[:5]
    return np.tile(top, (E.shape[0], 1)), {}


def _frequent(Y):
    """The labels of a few samples that are on most often."""
    return Y[:, np.argsort(-np.bincount(Y.indices, minlength=Y.shape[1]), kind="stable")[:20]]


def omikuji(X, Y, E, options) -> tuple[np.ndarray, dict]:
    import omikuji as peer

    with tempfile.TemporaryDirectory() as folder:
        _write_xc(Path(folder) / "train.txt", X, Y)
        hyper = peer.Model.default_hyper_param()
        start = time.process_time()
        model = peer.Model.train_on_data(str(Path(folder) / "train.txt"), hyper, n_threads=options.jobs)
        trained = time.process_time()
        top = [[label for label, _ in model.predict(_pairs(E, i), top_k=5)] for i in range(E.shape[0])]
        told = _times(start, trained, E)
        model.save(folder + "/model")
        told["model MB"] = _stored(folder + "/model")
    return np.array([row + [-1] * (5 - len(row)) for row in top]), told


def napkinxc(X, Y, E, options) -> tuple[np.ndarray, dict]:
    from napkinxc.models import PLT

    with tempfile.TemporaryDirectory() as folder:
        model = PLT(folder + "/model", threads=options.jobs)
        labels = [Y.indices[a:b].tolist() for a, b in zip(Y.indptr, Y.indptr[1:], strict=False)]
        start = time.process_time()
        model.fit(sp.csr_matrix(X), labels)
        trained = time.process_time()
        top = model.predict(sp.csr_matrix(E), top_k=5)
        told = _times(start, trained, E)
        told["model MB"] = _stored(folder + "/model")
    return np.array([list(row) + [-1] * (5 - len(row)) for row in top]), told


def pecos(X, Y, E, options) -> tuple[np.ndarray, dict]:
    """XR-Linear, with the tree that its guide makes; the library also wants the labels as floats."""
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    X, Y, E = (sp.csr_matrix(matrix, dtype=np.float32) for matrix in (X, Y, E))
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        tree = Indexer.gen(LabelEmbeddingFactory.create(Y, X, method="pifa"), threads=options.jobs)
        model = XLinearModel.train(X, Y, C=tree, threads=options.jobs)
        trained = time.process_time()
        answer = sp.csr_matrix(model.predict(E, only_topk=5, threads=options.jobs))
        told = _times(start, trained, E)
        model.save(folder)
        told["model MB"] = _stored(folder)
    return _best(answer), told


def libmultilabel_tree(X, Y, E, options) -> tuple[np.ndarray, dict]:
    """Its tree of labels."""
    from libmultilabel.linear import train_tree

    return _libmultilabel(train_tree, X, Y, E, options)


def libmultilabel(X, Y, E, options) -> tuple[np.ndarray, dict]:
    """One-vs-rest on every hundredth label, times a hundred; it gives no answers for the others."""
    from libmultilabel.linear import train_1vsrest

    _, told = _libmultilabel(train_1vsrest, X, Y[:, ::SAMPLED], E, options)
    for key in ("train s", "predict ms/1000", "model MB"):
        told[key] *= SAMPLED
    return np.full((E.shape[0], 5), -1), told


def _libmultilabel(train, X, Y, E, options) -> tuple[np.ndarray, dict]:
    import pickle

    X, Y, E = (sp.csr_matrix(matrix, dtype=np.float64) for matrix in (X, Y, E))
    start = time.process_time()
    model = train(Y, X, f"-s 1 -B 1 -e 0.0001 -q -m {options.jobs}", verbose=False)
    trained = time.process_time()
    scores = np.vstack([model.predict_values(E[a : a + 500]) for a in range(0, E.shape[0], 500)])
    told = _times(start, trained, E) | {"model MB": len(pickle.dumps(model)) / 1e6}
    return np.argsort(-scores, axis=1, kind="stable")[:, :5], told


def _stored(folder: str) -> float:
    """Size of the files of a folder, in MB."""
    return sum(file.stat().st_size for file in Path(folder).rglob("*")) / 1e6


def _best(scores: sp.csr_matrix) -> np.ndarray:
    """Five labels of sparse rows of scores, the best first; -1 where there are fewer."""
    top = np.full((scores.shape[0], 5), -1)
    for i in range(scores.shape[0]):
        part = slice(scores.indptr[i], scores.indptr[i + 1])
        order = np.argsort(-scores.data[part], kind="stable")[:5]
        top[i, : len(order)] = scores.indices[part][order]
    return top


PEERS = {
    "ours": ours,
    "constant": constant,
    "omikuji": omikuji,
    "napkinxc": napkinxc,
    "pecos": pecos,
    "libmultilabel": libmultilabel,
    "libmultilabel-tree": libmultilabel_tree,
}


def _times(start: float, trained: float, E) -> dict:
    spent = time.process_time() - trained
    return {"train s": trained - start, "predict ms/1000": 1e6 * spent / E.shape[0]}


def _pairs(X, i: int) -> list[tuple[int, float]]:
    part = slice(X.indptr[i], X.indptr[i + 1])
    return list(zip(X.indices[part].tolist(), X.data[part].tolist(), strict=True))


def _write_xc(path: Path, X, Y) -> None:
    with open(path, "w") as out:
        out.write(f"{X.shape[0]} {X.shape[1]} {Y.shape[1]}\n")
        for i in range(X.shape[0]):
            labels = ",".join(map(str, Y.indices[Y.indptr[i] : Y.indptr[i + 1]].tolist()))
            out.write(labels + " " + " ".join(f"{j}:{v:.6g}" for j, v in _pairs(X, i)) + "\n")


def inside(folder: Path, options) -> None:
    """Train and predict in this interpreter, on the arrays of a folder."""
    X, Y, E = (sp.csr_array(sp.load_npz(folder / f"{name}.npz")) for name in ("X", "Y", "E"))
    X.sort_indices()
    before = _peak()
    top, told = PEERS[options.peer](X, Y, E, options)
    told["peak MB"] = (_peak() - before) / 1e3
    np.savez(folder / "answer.npz", top=top, names=list(told), values=list(told.values()))


def _peak() -> int:
    """Most memory this program has held, in kB; in rusage that of its parent would count."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def measured(top: np.ndarray, Y: sp.csr_array, truth: sp.csr_array) -> dict:
    """Return the measures of five labels for every text; -1 means no label."""
    from maxmargin import metrics

    given = top >= 0
    scores = sp.csr_array(
        (-np.nonzero(given)[1].astype(float), top[given], np.concatenate([[0], given.sum(axis=1).cumsum()])),
        shape=truth.shape,
    )
    found = {f"P@{k}": 100 * metrics.precision_at_k(truth, scores, k) for k in (1, 3, 5)}
    chance = metrics.propensities(Y)
    found["nDCG@5"] = 100 * metrics.ndcg_at_k(truth, scores, 5)
    found["PSP@5"] = 100 * metrics.propensity_precision_at_k(truth, scores, 5, propensity=chance)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("problem", choices=["cut", "full", "generated", "pruning"])
    parser.add_argument("--peer", choices=PEERS, default="ours")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the peer's environment")
    parser.add_argument("--C", type=float, default=1.0)
    parser.add_argument("--choose-C", dest="choose_C", action="store_true", help="on the training texts")
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--loss", choices=["hinge", "squared_hinge"], default="hinge")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--labels", type=int, default=100_000, help="labels of the generated problem")
    parser.add_argument("--texts", type=int, default=200_000, help="texts of the generated problem")
    parser.add_argument("--part", type=int, default=0, help="labels to fit at a time; 0 means all")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder is not None:
        inside(options.folder, options)
        return
    if options.problem == "generated":
        X, Y, E, truth = made_problem(options.labels, options.texts)
    else:
        X, Y, E, truth = text_problem(Path(os.environ["MAXMARGIN_DATA"]), options.problem != "full")
    if options.problem == "pruning":
        pruning(X, Y)
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, matrix in (("X", X), ("Y", Y), ("E", E)):
            sp.save_npz(Path(folder) / f"{name}.npz", matrix, compressed=False)
        words = [options.python, __file__, *sys.argv[1:], "--folder", folder]
        subprocess.run(words, check=True)
        answer = np.load(Path(folder) / "answer.npz")
        told = dict(zip(answer["names"].tolist(), answer["values"].tolist(), strict=True))
        row = {"problem": options.problem, "samples": X.shape[0], "labels": Y.shape[1], "peer": options.peer}
        row |= {"loss": options.loss, "C": told.get("C", options.C), "tol": options.tol, "jobs": options.jobs}
        row["load"] = os.getloadavg()[0]
        # The sample of labels of one-vs-rest answers nothing.
        found = measured(answer["top"], Y, truth)
        row |= found if np.any(answer["top"] >= 0) else dict.fromkeys(found, "")
        row |= {
            key: told.get(key, "") for key in ("train s", "predict ms/1000", "model MB", "peak MB", "gap")
        }
    shown = {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in row.items()}
    print("  ".join(f"{key} {value}" for key, value in shown.items()))
    new = not RESULTS.exists()
    with open(RESULTS, "a", newline="") as out:
        table = csv.DictWriter(out, shown)
        if new:
            table.writeheader()
        table.writerow(shown)


if __name__ == "__main__":
    main()
