"""The report page: complete, self-contained, and looked at in a real browser."""

from __future__ import annotations

import html.parser
import json
import re
import shutil
import subprocess

import pytest

from maxmargin.cli import main

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Reports of a multi-label, a multi-class and a ranking model."""
    folder = tmp_path_factory.mktemp("reports")
    found = {}
    for data, model, options in (
        ("flags", "multilabel", ["--prior", "labels", "--scale", "standard"]),
        ("iris", "sparse-multiclass", ["--random-state", "0"]),
        ("mail-stream", "ranking", []),
    ):
        path = folder / f"{model}.html"
        assert main(["fit", data, "-m", model, "-o", str(folder / "m.mm"), *options]) == 0
        assert main(["report", str(folder / "m.mm"), data, "--train", data, "-o", str(path)]) == 0
        found[model] = path
    return found


class Reader(html.parser.HTMLParser):
    """Collects headings, images and whatever is loaded from elsewhere."""

    def __init__(self):
        super().__init__()
        self.images, self.outside, self.headings, self.inside = [], [], [], ""

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.inside = tag
        if tag == "img":
            self.images.append(given)
        for key in ("src", "href"):
            if key in given and not given[key].startswith(("data:", "#")):
                self.outside.append(given[key])

    def handle_data(self, data):
        if self.inside in ("h2", "h3"):
            self.headings.append(data)

    def handle_endtag(self, tag):
        self.inside = ""


def read(path):
    reader = Reader()
    reader.feed(path.read_text("utf-8"))
    return reader


def test_the_page_is_complete_and_needs_nothing_from_elsewhere(pages):
    reader = read(pages["multilabel"])
    assert reader.headings == [
        "multilabel on flags", "Training", "Labels", "Thresholds", "Label correlations",
        "Most weighted features", "Errors", "Where it comes from", "Versions",
    ]  # fmt: skip
    assert len(reader.images) == 3 and not reader.outside
    assert all(image["alt"] and image["src"].startswith("data:image/svg+xml") for image in reader.images)
    assert "training labels, prior, test labels, predicted" in pages["multilabel"].read_text()
    assert "scikit-learn OvR LinearSVC" in pages["multilabel"].read_text()
    for path in pages.values():
        assert not read(path).outside


def test_words_from_the_data_are_escaped(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("<b>a</b>,b,kind\n" + "0,1,<script>x\n1,0,y\n" * 4)
    assert main(["fit", "t.csv", "-m", "multiclass", "--target", "kind", "-o", "m.mm"]) == 0
    assert main(["report", "m.mm", "t.csv"]) == 0
    text = (tmp_path / "report.html").read_text()
    assert "<script>" not in text and "<b>a" not in text and "&lt;script&gt;x" in text


PROBE = """
<script>
window.addEventListener("load", () => {
  const broken = [...document.images].filter(i => !i.complete || i.naturalWidth === 0).length;
  const edge = document.documentElement.clientWidth + 1;
  const wide = [...document.querySelectorAll("body *")].filter(e => !e.closest(".scroll"))
    .filter(e => e.getBoundingClientRect().right > edge).map(e => e.tagName);
  const result = {broken, wide, images: document.images.length, width: document.documentElement.clientWidth,
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    paper: getComputedStyle(document.body).backgroundColor};
  document.title = "probe" + JSON.stringify(result);
});
</script>
"""


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium")
@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_browser_shows_every_picture_and_nothing_overflows(pages, tmp_path, width, dark):
    for name, path in pages.items():
        # A frame of the wanted width: headless windows have a least width of their own.
        inner = tmp_path / f"{name}.html"
        inner.write_text(path.read_text("utf-8").replace("</body>", PROBE + "</body>"), "utf-8")
        outer = tmp_path / "outer.html"
        outer.write_text(
            f'<!doctype html><body style="margin:0"><iframe id=f src="{inner.name}" '
            f'style="border:0;width:{width}px;height:900px"></iframe><pre id=o></pre><script>'
            "setInterval(() => { o.textContent = f.contentDocument.title }, 50)</script>"
        )
        answer = subprocess.run(
            [
                CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files",
                "--hide-scrollbars", "--virtual-time-budget=4000", "--enable-logging=stderr",
                "--window-size=1600,1000",
                *(["--blink-settings=preferredColorScheme=0"] if dark else []),
                f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", outer.as_uri(),
            ],
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        console = [line for line in answer.stderr.splitlines() if "CONSOLE" in line]
        assert not console
        found = re.search(r"probe(\{.*?\})</pre>", answer.stdout)
        assert found, answer.stderr[-2000:]
        result = json.loads(found.group(1))
        assert result["width"] == width and result["overflow"] <= 0 and result["wide"] == []
        assert result["broken"] == 0 and result["images"] == len(read(path).images)
        assert (result["paper"] == "rgb(20, 23, 27)") is dark
