"""Files that are cut off, altered, too large or made with ill intent are refused."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

import maxmargin
from maxmargin.io import model_file as _file
from maxmargin.persistence import ModelFileError

X = np.random.default_rng(0).normal(size=(20, 3))
Y = (X > 0).astype(int)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Contents of some sound model files."""
    folder = tmp_path_factory.mktemp("models")
    contents = {}
    for name, model in {
        "multilabel": maxmargin.MultiLabelSVC().fit(X, [{"abc"[k] for k in range(3) if row[k]} for row in Y]),
        "chain": maxmargin.ChainSVC().fit(list(X.reshape(4, 5, 3)), list(Y[:, 0].reshape(4, 5))),
        "ranking": maxmargin.LabelRanker().fit(X, Y),
        "submodular": maxmargin.SubmodularSVC().fit(X, Y),
    }.items():
        maxmargin.save(model, folder / name)
        contents[name] = (folder / name).read_bytes()
    return contents


def forge(content, change, path):
    """Change the document of a file and give it the hash that fits."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    document = json.loads(header["__metadata__"]["maxmargin"])
    changed = change(document)
    document = document if changed is None else changed
    text = document if isinstance(document, str) else json.dumps(document)
    path.write_bytes(content)
    from safetensors.numpy import load_file

    tensors = load_file(path)
    header["__metadata__"] = {"maxmargin": text, "sha256": _file._digest(text, tensors)}
    new = json.dumps(header).encode()
    path.write_bytes(len(new).to_bytes(8, "little") + new + content[8 + size :])


def test_every_truncation_is_refused(models, tmp_path):
    content = models["multilabel"]
    path = tmp_path / "m.mm"
    for length in [*range(64), *range(64, len(content), 97), len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(ModelFileError):
            maxmargin.load(path)


def test_every_altered_byte_is_refused(models, tmp_path):
    content = models["chain"]
    path = tmp_path / "m.mm"
    rng = random.Random(0)
    size = int.from_bytes(content[:8], "little")
    # The last bytes of the header are blanks, which carry no meaning.
    carrying = len(content[: 8 + size].rstrip())
    positions = [*range(8), *rng.sample(range(8, carrying), 300), *range(8 + size, len(content), 11)]
    for position in positions:
        altered = bytearray(content)
        altered[position] ^= 1 << rng.randrange(8)
        path.write_bytes(altered)
        with pytest.raises(ModelFileError):
            maxmargin.load(path)


def test_trailing_bytes_and_false_sizes_are_refused(models, tmp_path):
    path = tmp_path / "m.mm"
    path.write_bytes(models["multilabel"] + b"more")
    with pytest.raises(ModelFileError):
        maxmargin.load(path)
    path.write_bytes((1 << 62).to_bytes(8, "little") + models["multilabel"][8:])
    with pytest.raises(ModelFileError):
        maxmargin.load(path)
    path.write_bytes(models["multilabel"])
    with pytest.raises(ModelFileError, match="max_bytes=100"):
        maxmargin.load(path, max_bytes=100)
    maxmargin.load(path, max_bytes=len(models["multilabel"]))


def test_a_missing_file_and_another_safetensors_file(tmp_path):
    from safetensors.numpy import save_file

    with pytest.raises(FileNotFoundError):
        maxmargin.load(tmp_path / "none.mm")
    save_file({"a": np.zeros(3)}, tmp_path / "other")
    with pytest.raises(ModelFileError, match="not a model of maxmargin"):
        maxmargin.load(tmp_path / "other")
    (tmp_path / "pickle").write_bytes(b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94.")
    with pytest.raises(ModelFileError):
        maxmargin.load(tmp_path / "pickle")


def _model(change):
    def apply(document):
        change(document["model"], document["model"]["state"])

    return apply


def deep(document):
    value = None
    for _ in range(300):
        value = [value]
    document["model"]["state"]["C"] = value


HOSTILE = {
    "newer format": lambda d: d.update(format=2),
    "format of words": lambda d: d.update(format="one"),
    "no model": lambda d: {key: value for key, value in d.items() if key != "model"},
    "a list": lambda d: [],
    "not JSON": lambda d: "{",
    "NaN": lambda d: '{"format": NaN}',
    "brackets": lambda d: "[" * 100_000,
    "other class": _model(lambda m, s: m.update({"class": "os.system"})),
    "class of scikit-learn": _model(lambda m, s: m.update({"class": "sklearn.FunctionTransformer"})),
    "part as model": _model(lambda m, s: m.update({"class": "part.LabelSpace"})),
    "other function": _model(lambda m, s: s.update(prior={"$": "function", "value": "eval"})),
    "other type": _model(lambda m, s: s.update(C={"$": "type", "value": "subprocess.Popen"})),
    "unknown kind": _model(lambda m, s: s.update(C={"$": "pickle", "value": "x"})),
    "kind of python": _model(lambda m, s: s.update(C={"$": "_class__", "value": "x"})),
    "shadowed method": _model(lambda m, s: s.update(predict="x")),
    "dunder": _model(lambda m, s: s.update(__class__="x")),
    "unknown parameter": _model(lambda m, s: s.update(cost=1.0)),
    "missing tensor": _model(lambda m, s: s.update(coef_={"$": "array", "tensor": "t99", "order": "C"})),
    "huge texts": _model(
        lambda m, s: s.update(C={"$": "words", "dtype": "<U999999999", "shape": [4], "items": [""] * 4})
    ),
    "void dtype": _model(lambda m, s: s.update(C={"$": "dtype", "value": "V8"})),
    "false csr": _model(
        lambda m, s: s.update(
            C=dict.fromkeys(("data", "indices", "indptr"), s["intercept_"])
            | {"$": "csr", "shape": [9, 9], "matrix": False}
        )
    ),
    "false frame": _model(lambda m, s: s.update(C={"$": "frame", "value": "os"})),
    "deep": deep,
}


@pytest.mark.parametrize("attack", HOSTILE)
def test_hostile_descriptions_are_refused(attack, models, tmp_path):
    path = tmp_path / "m.mm"
    forge(models["multilabel"], HOSTILE[attack], path)
    with pytest.raises(ModelFileError) as refusal:
        maxmargin.load(path)
    assert str(path) in str(refusal.value) and "\n" not in str(refusal.value)
