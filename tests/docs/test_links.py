"""The check of addresses, against a server of our own."""

import importlib.util
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "links.py"


class Site(BaseHTTPRequestHandler):
    """/here answers; /shy answers GET alone; nothing else is there."""

    def do_HEAD(self):
        self.send_response({"/here": 200, "/shy": 405}.get(self.path, 404))
        self.end_headers()

    def do_GET(self):
        self.send_response(200 if self.path in ("/here", "/shy") else 404)
        self.end_headers()

    def log_message(self, *words):
        pass


@pytest.fixture
def site():
    server = HTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def links():
    spec = importlib.util.spec_from_file_location("links", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def test_an_address_that_does_not_answer_is_told(links, site, tmp_path, capsys):
    good, bad = tmp_path / "good.md", tmp_path / "bad.md"
    good.write_text(f"See [here]({site}/here), or <{site}/shy>. Not http://a.example/x and https://*.org.")
    bad.write_text(f"`{site}/gone`.")
    assert links.main([str(good)]) == 0
    assert links.main([str(good), str(bad)]) == 1
    said = capsys.readouterr().out
    assert said.splitlines()[0] == "2 addresses, 0 do not answer."
    assert f"{site}/gone: 404 Not Found ({bad})" in said and "3 addresses, 1 do not answer." in said
