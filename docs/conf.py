"""Configuration of the documentation; build it with `make docs`."""

import re
import sys
from pathlib import Path

import latex2mathml.converter
from docutils import nodes

sys.path.insert(0, str(Path(__file__).parent))
from gallery import SECTIONS
from results_table import write_results
from speed import draw_speed

import maxmargin

project = "maxmargin"
author = "the maxmargin developers"
project_copyright = "the maxmargin developers"
release = version = maxmargin.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "house",
]
exclude_patterns = ["_build", "**/README.txt"]
html_theme = "pydata_sphinx_theme"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {"show_prev_next": False, "navigation_with_keys": False}
html_title = "maxmargin"
highlight_language = "text"
# Pages without subpages have no section menu.
ALONE = (
    "index",
    "architecture",
    "getting_started",
    "coming_from",
    "command_line",
    "comparison",
    "configuration",
    "glossary",
    "not_for",
    "results",
    "security",
)
html_sidebars = {page: [] for page in ALONE}
templates_path = ["_templates"]
autosummary_generate = True
numpydoc_show_class_members = False
autodoc_typehints = "none"
toc_object_entries_show_parents = "hide"
# Every example runs during the build, on data that ships with the package or is generated.
sphinx_gallery_conf = {
    "examples_dirs": ["../examples"],
    "gallery_dirs": ["auto_examples"],
    "filename_pattern": r"\.py$",
    "subsection_order": [f"../examples/{section}" for section in SECTIONS],
    "within_subsection_order": "gallery.Order",
    "nested_sections": False,
    "reset_modules": ("matplotlib", "gallery.style"),
    "backreferences_dir": "auto_examples/backreferences",
    "doc_module": ("maxmargin",),
    "capture_repr": (),
    "download_all_examples": False,
    "show_memory": False,
}

write_results(Path(__file__).parent)
draw_speed(Path(__file__).parent)

_REFERENCE = re.compile(r":ref:`([^<`]+?)\s*<[^`]+>`")
_FITTED = re.compile(r"(?<=\w)_(?=[\s,.:;)]|$)")


def plain_words(app, what, name, obj, options, lines):
    """Escape |x| and names such as coef_, and turn references to other sites into plain text."""
    for k, line in enumerate(lines):
        if line.lstrip().startswith((">>>", "...")):
            continue
        pieces = _REFERENCE.sub(r"\1", line).split("`")
        pieces[::2] = [_FITTED.sub(r"\_", piece.replace("|", r"\|")) for piece in pieces[::2]]
        lines[k] = "`".join(pieces)


def write_formula(visitor, node):
    """Write a formula as MathML, which browsers display without a script."""
    block = isinstance(node, nodes.math_block)
    formula = latex2mathml.converter.convert(node.astext(), display="block" if block else "inline")
    visitor.body.append(f'<div class="formula">{formula}</div>' if block else formula)
    raise nodes.SkipNode


def setup(app):
    app.connect("autodoc-process-docstring", plain_words, priority=400)
    app.add_html_math_renderer("mathml", (write_formula, None), (write_formula, None))
