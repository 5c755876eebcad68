"""`fetch` against a local server: every fault gives one clear error and no half-written file."""

import gzip
import hashlib
import lzma
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from maxmargin.datasets import DownloadError, FileInfo, fetch, load
from maxmargin.io import registry as _registry
from maxmargin.io.registry import DatasetInfo, registry

BODY = b"1 1:0.5\n2 2:0.25\n" * 50_000  # more than one piece
PACKED = lzma.compress(BODY)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        what = self.path.rpartition("/")[2]
        self.server.requests.append(what)
        if what == "hang":
            self.server.stop.wait(20)
            return
        if what == "missing":
            self.send_error(404)
            return
        if what == "broken":
            self.send_error(500)
            return
        bodies = {"packed.xz": PACKED, "zipped": gzip.compress(BODY), "other": BODY[:-1] + b"!"}
        body = (bodies | self.server.bodies).get(what, BODY)
        if what == "longer":
            body += b"x" * (1 << 21)
        self.send_response(200)
        if what != "no-length":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if what in ("cut", "stall"):
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            if what == "stall":
                self.server.stop.wait(20)
            self.close_connection = True
            return
        try:
            self.wfile.write(body)
        except ConnectionError:
            self.close_connection = True

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def server():
    pytest.importorskip("pooch")
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    httpd.requests, httpd.bodies, httpd.stop = [], {}, threading.Event()
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    httpd.address = f"http://127.0.0.1:{httpd.server_address[1]}"
    yield httpd
    httpd.stop.set()
    httpd.shutdown()
    httpd.server_close()
    thread.join()


@pytest.fixture
def known(server, monkeypatch):
    """Registers one data set of one file that is found under the given name on the server."""

    def register(what, path="toy/a.svm", packed=False, url=None, sha=None):
        content = PACKED if packed else BODY
        file = FileInfo(
            path,
            len(content),
            sha or sha256(content),
            "here",
            url or f"{server.address}/{what}",
            *((len(BODY), sha256(BODY)) if packed else ()),
        )
        about = DatasetInfo("toy", "multilabel", "here", "none", (file,))
        monkeypatch.setattr(_registry, "info", lambda name: about)
        return file

    return register


def everything_below(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def test_a_good_file_arrives_once(server, known, tmp_path):
    known("good")
    seen = []
    assert fetch("toy", directory=tmp_path, progress=lambda *steps: seen.append(steps)) == tmp_path / "toy"
    assert (tmp_path / "toy" / "a.svm").read_bytes() == BODY
    assert seen[-1] == (len(BODY), len(BODY)) and len(seen) > 1
    before = len(server.requests)
    fetch("toy", directory=tmp_path)
    assert len(server.requests) == before
    assert everything_below(tmp_path) == ["toy/a.svm"]


@pytest.mark.parametrize(
    ("what", "packed"), [("good", False), ("no-length", False), ("good", True), ("zipped", True)]
)
def test_a_damaged_file_is_replaced(known, tmp_path, what, packed):
    """The server may name no length, and may pack a file otherwise than the registry says."""
    known(what, path="toy/a.svm.xz" if packed else "toy/a.svm", packed=packed)
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "a.svm").write_bytes(b"nonsense")
    fetch("toy", directory=tmp_path)
    content = (tmp_path / "toy" / "a.svm").read_bytes()
    assert (gzip.decompress(content) if what == "zipped" else content) == BODY
    assert everything_below(tmp_path) == ["toy/a.svm"]


def test_a_mirror_has_the_registered_files(server, known, tmp_path):
    known("nowhere", path="toy/packed.xz", packed=True)
    fetch("toy", directory=tmp_path, mirror=f"{server.address}/some/folder/")
    assert (tmp_path / "toy" / "packed.xz").read_bytes() == PACKED


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("other", "sha256 differs"),
        ("cut", "cut off|sha256"),
        ("longer", "more than the expected"),
        ("missing", "answered 404"),
        ("broken", "answered 500"),
        ("hang", r"no answer within 0\.3 s"),
        ("stall", r"no answer within 0\.3 s"),
    ],
)
@pytest.mark.parametrize("before", [None, b"an older file"])
def test_failures_leave_things_as_they_were(known, tmp_path, what, message, before):
    known(what)
    if before is not None:
        (tmp_path / "toy").mkdir()
        (tmp_path / "toy" / "a.svm").write_bytes(before)
    started = time.monotonic()
    with pytest.raises(DownloadError, match=message) as caught:
        fetch("toy", directory=tmp_path, timeout=0.3 if what in ("hang", "stall") else 20)
    assert what in str(caught.value)
    assert time.monotonic() - started < 15
    assert everything_below(tmp_path) == ([] if before is None else ["toy/a.svm"])
    if before is not None:
        assert (tmp_path / "toy" / "a.svm").read_bytes() == before


def test_no_network(known, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        known("x", url=f"http://127.0.0.1:{taken.getsockname()[1]}/x")
        with pytest.raises(DownloadError, match="no connection"):
            fetch("toy", directory=tmp_path)
    known("x", url="http://no-such-host.invalid/x")
    with pytest.raises(DownloadError, match="no connection"):
        fetch("toy", directory=tmp_path)
    assert everything_below(tmp_path) == []


def test_only_web_addresses(known, tmp_path):
    known("x", url=(tmp_path / "x").as_uri())
    (tmp_path / "x").write_bytes(BODY)
    with pytest.raises(DownloadError, match="http"):
        fetch("toy", directory=tmp_path / "out")
    assert everything_below(tmp_path) == ["x"]


def test_an_interrupted_download_leaves_nothing(known, tmp_path):
    known("good")

    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("toy", directory=tmp_path, progress=interrupt)
    assert everything_below(tmp_path) == []


def test_without_pooch_the_cure_is_named(known, tmp_path, monkeypatch):
    known("good")
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ImportError, match="pip install pooch"):
        fetch("toy", directory=tmp_path)
    assert everything_below(tmp_path) == []


def test_files_without_an_address_are_named_before_anything_is_loaded(tmp_path):
    with pytest.raises(DownloadError, match=r"rcv1subset1_test\.svm\.xz.*MAXMARGIN_DATA"):
        fetch("rcv1-subsets", directory=tmp_path)
    assert everything_below(tmp_path) == []


def test_load_finds_what_fetch_got(server, monkeypatch, tmp_path):
    train, test = b"1 1:1 180:1\n2 3:1\n", b"3 2:1\n"
    files = tuple(
        FileInfo(f"dna/{name}", len(body), sha256(body), "here", f"{server.address}/{name}")
        for name, body in (("dna.scale", train), ("dna.scale.t", test))
    )
    monkeypatch.setattr(_registry, "info", lambda name: DatasetInfo("dna", "multiclass", "", "", files))
    server.bodies.update({"dna.scale": train, "dna.scale.t": test})
    monkeypatch.delenv("MAXMARGIN_DATA", raising=False)
    monkeypatch.setenv("MAXMARGIN_CACHE", str(tmp_path))
    fetch("dna")
    data = load("dna")
    np.testing.assert_array_equal(data.y, [1, 2, 3])
    assert data.X.shape == (3, 180) and data.test.tolist() == [2]


def test_the_registry_is_complete():
    for name, about in registry().items():
        assert about.name == name and about.files and about.source and about.licence
        for file in about.files:
            collection = name.partition("/")[0]
            assert about.shipped or file.path.startswith(f"{collection}/")
            assert file.bytes > 0 and len(file.sha256) == 64
            assert file.url is None or file.url.startswith("https://raw.githubusercontent.com/")
            assert (file.unpacked_sha256 is None) != file.path.endswith(".xz")
    assert sum(about.downloadable for about in registry().values()) >= 15
