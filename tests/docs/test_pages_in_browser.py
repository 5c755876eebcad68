"""The built site in a browser, on a phone and on a small screen: `make docs`, then `make test-browser`."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

HTML = Path(__file__).parents[2] / "docs" / "_build" / "html"
CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
PAGES = [
    "index.html",
    "getting_started.html",
    "coming_from.html",
    "models/multilabel.html",
    "howto/scaling_and_c.html",
    "auto_examples/index.html",
    "auto_examples/practice/command_line.html",
    "generated/maxmargin.MultiLabelSVC.html",
]
# Missing pictures, and code, formulas and text that are cut off at the edge of their column.
PROBE = """
<script>
window.addEventListener("load", () => {
  const code = [...document.querySelectorAll("div[class^=highlight-] pre")];
  const formulas = [...document.querySelectorAll(".formula")];
  const edge = document.documentElement.clientWidth;
  document.title = "probe" + JSON.stringify({
    broken: [...document.images].filter(i => !i.complete || i.naturalWidth === 0).map(i => i.src),
    cut: [...code, ...formulas].filter(p => p.scrollWidth > p.clientWidth + 1)
      .map(p => p.textContent.slice(0, 60)),
    overflow: document.documentElement.scrollWidth - edge,
    beyond: [...document.querySelectorAll("main p, main dt, main li")]
      .filter(p => !p.closest(".pst-scrollable-table-container"))
      .filter(p => p.getBoundingClientRect().right > edge + 1).map(p => p.textContent.slice(0, 60)),
    blocks: code.length,
  });
});
</script>
"""


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium")
@pytest.mark.skipif(not (HTML / "index.html").exists(), reason="the site is not built: make docs")
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_cut_off(name, width, tmp_path):
    site = tmp_path / "site"
    shutil.copytree(HTML, site, ignore=shutil.ignore_patterns("*.zip", "*.ipynb", "_sources"))
    page = site / name
    page.write_text(page.read_text("utf-8").replace("</body>", PROBE + "</body>"), "utf-8")
    # A frame of the given width, because headless windows have a minimum width.
    outer = site / "outer.html"
    outer.write_text(
        f'<!doctype html><body style="margin:0"><iframe id=f src="{name}" '
        f'style="border:0;width:{width}px;height:900px"></iframe><pre id=o></pre><script>'
        "setInterval(() => { o.textContent = f.contentDocument.title }, 50)</script>"
    )
    answer = subprocess.run(
        [
            CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files",
            "--hide-scrollbars", "--virtual-time-budget=4000", "--window-size=1600,1000",
            f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", outer.as_uri(),
        ],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    found = re.search(r"probe(\{.*?\})</pre>", answer.stdout)
    assert found, answer.stderr[-2000:]
    result = json.loads(unescape(found.group(1)))
    assert result["broken"] == [] and result["cut"] == [] and result["beyond"] == []
    assert result["overflow"] <= 0
    assert result["blocks"] > 0 or name == "auto_examples/index.html"


@pytest.mark.browser
@pytest.mark.skipif(not (HTML / "index.html").exists(), reason="the site is not built: make docs")
def test_links_within_the_site_lead_somewhere():
    pages = {path: path.read_text("utf-8") for path in HTML.rglob("*.html") if "_static" not in path.parts}
    anchors = {path: set(re.findall(r'\bid="([^"]+)"', text)) for path, text in pages.items()}
    broken = []
    for path, text in pages.items():
        for link in map(unescape, re.findall(r'\b(?:href|src)="([^"]+)"', text)):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            there = target.is_file() and (
                not parts.fragment or target.suffix != ".html" or unquote(parts.fragment) in anchors[target]
            )
            if not there:
                broken.append((str(path.relative_to(HTML)), link))
    assert broken == []
