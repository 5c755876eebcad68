"""The report page: complete, self-contained, and looked at in a real browser."""

from __future__ import annotations

import html.parser
import inspect
import itertools
import json
import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.metrics import accuracy_score, f1_score, hamming_loss

from maxmargin import MultiLabelSVC
from maxmargin.cli import evaluate, main
from maxmargin.cli.evaluate import report_command
from maxmargin.cli.fit import fit_command
from maxmargin.metrics import label_log_loss
from maxmargin.report import Subject, sections, verdict
from maxmargin.report.verdict import constant_measure, judgement, leads

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Reports of models that between them have every section."""
    folder = tmp_path_factory.mktemp("reports")
    found = {}
    for data, model, options in (
        ("flags", "multilabel", ["--prior", "labels", "--scale", "standard", "--random-state", "0"]),
        ("flags", "submodular", ["--scale", "standard", "--max-iter", "20"]),
        ("iris", "sparse-multiclass", ["--random-state", "0"]),
        ("iris", "multiclass", ["--kernel", "rbf", "--random-state", "0"]),
        ("iris", "ranking", []),
        (str(letters(folder)), "chain", []),
    ):
        path = folder / f"{model}.html"
        file = str(folder / ("flags.mm" if model == "multilabel" else "m.mm"))
        assert main(["fit", data, "-m", model, "-o", file, *options]) == 0
        assert main(["report", file, data, "--train", data, "-o", str(path)]) == 0
        found[model] = path
    return found


def letters(folder):
    """A letter.data file of words of three letters, half of them for testing."""
    rng = np.random.default_rng(0)
    lines = []
    for word in range(12):
        for place, letter in enumerate("abc"):
            pixels = (rng.random(6) < 0.4).astype(int)
            pixels["abc".index(letter)] = 1
            following = -1 if place == 2 else len(lines) + 2
            lines.append(
                "\t".join(map(str, [len(lines) + 1, letter, following, word, place, word % 2, *pixels]))
            )
    path = folder / "letter.data"
    path.write_text("\n".join(lines) + "\n")
    return path


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
    # F1 of labels, distance from the optimum, four heat maps of correlations.
    assert len(reader.images) == 1 + 1 + 4
    assert all(image["alt"] and image["src"].startswith("data:image/svg+xml") for image in reader.images)
    assert "training labels, prior, test labels, predicted" in pages["multilabel"].read_text()
    assert "Trained on 129 samples of flags. Judged on 65 samples" in pages["multilabel"].read_text()
    assert "scikit-learn OvR LinearSVC" in pages["multilabel"].read_text()
    for path in pages.values():
        assert not read(path).outside


SECTIONS = {
    "multilabel": "First labels,Label correlations,Training,Most weighted features",
    "submodular": "First labels,Label correlations,Training,Most weighted features,Attractive pairs",
    "sparse-multiclass": "Confusions,Basis vectors",
    "multiclass": "Confusions,Training,Support vectors",
    "ranking": "Ranking,Confusions,Most weighted features",
    "chain": "Confusions,Training,Most weighted features,Transitions",
}


@pytest.mark.parametrize("model", SECTIONS)
def test_every_family_has_its_sections(pages, model):
    between = SECTIONS[model].split(",")
    assert read(pages[model]).headings == ["Summary", "Labels", *between, "Errors", "Versions"]


def html_of(subject, *titles):
    """The HTML of some sections of a report."""
    return "".join(section.html for section in sections(subject) if section.title in titles)


def test_errors_show_their_features(tmp_path, monkeypatch):
    """One sample lies on the wrong side, because of its second feature."""
    monkeypatch.chdir(tmp_path)
    rows = "1,0,x\n0,1,y\n" * 6
    (tmp_path / "train.csv").write_text("one,two,kind\n" + rows)
    (tmp_path / "test.csv").write_text("one,two,kind\n" + rows + "0,3,x\n")
    assert main(["fit", "train.csv", "-m", "multiclass", "--target", "kind", "-o", "m.mm"]) == 0
    assert main(["report", "m.mm", "test.csv"]) == 0
    text = (tmp_path / "report.html").read_text()
    assert "1 of 13 predictions are wrong" in text
    errors = text[text.index(">Errors<") :]
    assert ">two +" in errors and ">one +" not in errors


def test_words_from_the_data_are_escaped(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "<i>\x1b[31m\u202e.csv"
    (tmp_path / name).write_text("<b>a</b>,b,kind\n" + '0,1,<script>x" onload="\x1b[31m\n1,0,y\n' * 4)
    assert main(["fit", name, "-m", "multiclass", "--target", "kind", "-o", "m.mm"]) == 0
    assert main(["report", "m.mm", name, "--train", name]) == 0
    text = (tmp_path / "report.html").read_text()
    assert "<script>x" not in text and "<b>a" not in text and "&lt;script&gt;x" in text and "<i>" not in text
    assert "\x1b" not in text and "\u202e" not in text and "\\x1b[31m" in text
    assert '" onload=' not in text


def test_a_report_without_matplotlib_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "iris", "-m", "multiclass", "-o", "m.mm"]) == 0
    monkeypatch.setattr("maxmargin.cli.evaluate.find_spec", lambda name: None)
    assert main(["report", "m.mm", "iris"]) == 1
    assert "pip install matplotlib" in capsys.readouterr().err


class Plain(BaseEstimator):
    """A model without attributes."""


def subject_of(truth, predicted, **more):
    truth, predicted = np.array(truth), np.array(predicted)
    names = tuple(f"l{k}" for k in range(truth.shape[1]))
    given = {"measures": {"micro F1": 0.5}, "seconds": 0.0, "label_names": names} | more
    return Subject("m", "d", Plain(), np.zeros((len(truth), 2)), truth, predicted, **given)


def test_sparse_weights_are_shown():
    X, Y = np.eye(4)[:, :3], np.array([[1, 0], [0, 1], [1, 1], [0, 0]])
    model = MultiLabelSVC(memory_limit=0, prune_below=0).fit(X, Y)
    about = Subject("m", "d", model, X, Y, 1 - Y, {"micro F1": 0.0}, 0.0, label_names=("a", "b"))
    np.testing.assert_array_equal(about.weights.toarray(), model.coef_.toarray())
    errors = html_of(about, "Errors")
    assert "4 of 4 predictions are wrong" in errors and "features with the largest parts" in errors


def test_the_verdict_names_labels_that_need_help():
    """l0 is right, l1 never predicted, l2 worse than by always saying yes."""
    truth = [[1, 0, 1], [0, 1, 1], [1, 1, 1], [0, 0, 0]]
    predicted = [[1, 0, 0], [0, 0, 0], [1, 0, 1], [0, 0, 1]]
    scores = np.array([[1, -3, 0], [-1, -1, 0], [1, -1, 1], [-1, -3, 1]]) - 0.5
    about = subject_of(
        truth, predicted, scores=scores, thresholds=np.array([0.0, -2.0, -1.0]),
        baseline="other", baseline_measures={"micro F1": 0.75},
    )  # fmt: skip
    sentence, advice = judgement(about)
    # Always giving all three labels: seven hits among twelve answers.
    assert sentence == (
        "micro F1 0.500 ± 0.164 on 4 samples, against 0.75 of other and 0.7368 of the best constant "
        "prediction, chosen on these samples themselves."
    )
    words = " ".join(advice)
    assert "other is better in micro F1 (0.5 against 0.75)" in words
    assert "1 of 3 labels is never predicted: l1." in words
    assert "change macro F1 from 0.4667 to 0.9524, and predict l1 above -2;" in words
    assert "1 of 3 labels is predicted worse (in F1) than by a constant yes: l2 (0.4 < 0.8571)." in words


def test_measures_and_their_errors_are_those_of_scikit_learn_on_resamples():
    """The influences add up: errors are the deviations over bootstrap samples."""
    rng = np.random.default_rng(0)
    truth, predicted = (rng.random((2, 300, 4)) < [0.5, 0.3, 0.2, 0.4]).astype(int)
    classes, guessed = rng.integers(0, 3, (2, 300))
    measures = {
        "micro F1": lambda t, p: f1_score(t, p, average="micro"),
        "macro F1": lambda t, p: f1_score(t, p, average="macro"),
        "example F1": lambda t, p: f1_score(t, p, average="samples", zero_division=1),
        "Hamming loss": hamming_loss,
        "exact match": accuracy_score,
        "accuracy": accuracy_score,
    }
    rows = rng.integers(0, 300, (200, 300))
    for t, p in ((truth, predicted), (classes, guessed)):
        about = Subject("m", "d", Plain(), np.zeros((300, 1)), t, p, {}, 0.0, label_names=tuple("abcd"))
        assert len(about.estimates) >= 3
        for name, found in about.estimates.items():
            measure = measures.get(name, accuracy_score)
            assert found.value == pytest.approx(measure(t, p))
            if name in ("micro F1", "macro F1", "accuracy"):
                spread = np.std([measure(t[some], p[some]) for some in rows])
                assert found.error() == pytest.approx(spread, rel=0.2)


def test_a_difference_within_the_noise_is_no_lead():
    truth = np.tile([[1, 0], [0, 1]], (50, 1))
    near, far = truth.copy(), truth.copy()
    near[0], far[:40] = 1 - near[0], 1 - far[:40]
    given = {"baseline": "other", "measures": {"micro F1": 1.0}}
    for theirs, lead in ((near, 0), (far, 1)):
        about = subject_of(truth, truth, baseline_predicted=theirs, **given)
        value = f1_score(truth, theirs, average="micro")
        about = replace(about, baseline_measures={"micro F1": value})
        assert leads(about, "micro F1") == lead
        assert ('class="best"' in html_of(about, "Summary")) is bool(lead)
        assert ("within 2 standard errors" in " ".join(judgement(about)[1])) is not bool(lead)


@pytest.mark.parametrize("seed", range(20))
def test_no_constant_answer_is_better_than_the_one_in_the_verdict(seed):
    """Rare labels, so that labels of half of the samples are seldom the best set."""
    rng = np.random.default_rng(seed)
    truth = (rng.random((15, 5)) < rng.uniform(0.05, 0.6, 5)).astype(int)
    sets = np.array(list(itertools.product([0, 1], repeat=5)))
    best = max(f1_score(truth, np.tile(each, (15, 1)), average="micro", zero_division=0) for each in sets)
    assert constant_measure(truth, truth, "micro F1") == pytest.approx(best)


def test_split_names_a_part_of_the_tested_data_only(pages, monkeypatch, tmp_path):
    """The baseline of --train learns from the training part, also with --split test."""
    sizes = []
    monkeypatch.setattr(
        evaluate, "baseline", lambda stored, known, data: sizes.append((len(known), len(data))) or {}
    )
    file = str(pages["multilabel"].parent / "flags.mm")
    for split in ([], ["--split", "test"]):
        assert (
            main(["report", file, "flags", "--train", "flags", *split, "-o", str(tmp_path / "r.html")]) == 0
        )
    assert sizes[0] == sizes[1] and sizes[0][0] != sizes[0][1]


def test_the_constant_answer_is_chosen_on_the_training_labels_where_they_are_known():
    """Training knows l0 and l1 together, the samples judged have l2."""
    truth = np.array([[0, 1, 1], [0, 0, 1]])
    training = np.array([[1, 1, 0], [1, 1, 0], [1, 0, 0]])
    about = subject_of(truth, truth, training_labels=training)
    # Always l0 and l1: one hit, seven labels said or true.
    assert constant_measure(truth, training, "micro F1") == pytest.approx(2 / 7)
    assert "0.2857 of the best constant prediction, chosen on the training labels." in judgement(about)[0]
    assert constant_measure(truth, training, "top label right") == 0.0
    assert constant_measure(truth, truth, "top label right") == 1.0


def test_probabilities_stand_beside_the_shares_of_the_training_labels():
    truth, training = np.array([[1, 0], [1, 1]]), np.array([[1, 0], [0, 0], [1, 0], [1, 0]])
    about = subject_of(truth, truth, probabilities=truth * 0.8 + 0.1, training_labels=training)
    shares = np.tile([4 / 6, 1 / 6], (2, 1))
    page = html_of(about, "Probabilities")
    assert "share of each label in the training samples" in page
    assert f"<td>{label_log_loss(truth, shares):.4g}</td>" in page
    page = html_of(replace(about, training_labels=None), "Probabilities")
    assert "share of each label in the test samples" in page


def calibrated(**more):
    """Scores that are right and probabilities that are low: l1 is never predicted at 0.5."""
    truth = np.array([[1, 1], [0, 1], [1, 0], [0, 0]])
    scores, chances = 2.0 * truth - 1, np.array([[0.9, 0.4], [0.2, 0.4], [0.6, 0.1], [0.1, 0.2]])
    given = {
        "measures": {"micro F1": 2 / 3, "macro F1": 0.5}, "scores": scores, "probabilities": chances,
        "thresholds": np.zeros(2), "baseline": "other",
        "baseline_measures": {"micro F1": 0.9, "macro F1": 0.9},
    }  # fmt: skip
    return subject_of(truth, chances > 0.5, **given | more)


def test_a_calibrated_model_is_judged_by_what_it_predicts():
    words = " ".join(judgement(calibrated())[1])
    assert "change macro F1 from 0.5 to 1, and predict l1 above 0;" in words
    assert "With scores above 0 it has micro F1 1 instead of 0.6667, macro F1 1 instead" in words
    assert "against 0.9). The reason is the threshold of 0.5 on probabilities, not C." in words
    assert "choose C" not in words
    page = html_of(calibrated(), "Labels")
    assert "F1 is for probabilities above 0.5" in page
    figures = re.search(r'<td class="w"[^>]*>l1</td>(.*?)</tr>', page)[1]
    assert re.findall(r">([-.0-9]+)<", figures) == [
        "0.000",
        "0.000",
        "0.000",
        "2",
        "0",
        "0.667",
        "1.000",
        "0.000",
    ]


def test_the_cut_is_blamed_only_where_scores_above_zero_do_better():
    """The other model is better than both, or the model predicts at 0 itself."""
    ours = calibrated(scores=np.full((4, 2), -1.0))
    words = " ".join(judgement(ours)[1])
    assert "against 0.9): choose C" in words and "not C" not in words and "scores above 0" not in words
    plain = replace(ours, probabilities=None, scores=np.where(ours.predicted, 1.0, -1.0))
    assert "other is better" in " ".join(judgement(plain)[1])
    assert "F1 is for scores above 0" in html_of(plain, "Labels")


def test_errors_of_a_calibrated_model_are_ordered_by_its_probabilities():
    """Row 1 is missed at 0.1, row 0 at 0.4, though its score is further from 0."""
    truth, chances = np.array([[1], [1]]), np.array([[0.4], [0.1]])
    about = subject_of(truth, chances > 0.5, scores=np.array([[3.0], [1.0]]), probabilities=chances)
    about = replace(about, X=np.ones((2, 2)))
    assert re.findall(r"<tr><td>(\d)</td>", html_of(about, "Errors")) == ["1", "0"]


def test_the_report_of_a_calibrated_model_agrees_with_itself(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fit = ["fit", "flags", "-m", "multilabel", "--scale", "standard", "--probabilities", "sigmoid"]
    assert main([*fit, "-o", "m.mm"]) == 0
    assert main(["report", "m.mm", "flags", "--train", "flags"]) == 0
    text = (tmp_path / "report.html").read_text()
    value = re.search(r">macro F1</td><td[^>]*>(?:<b[^>]*>)?([\d.]+)", text)[1]
    advised = float(re.search(r"change macro F1 from ([\d.]+) to ", text)[1])
    assert value == f"{advised:.3f}"
    part = text[text.index(">Labels<") :]
    own = re.findall(r'<tr><td class="w">[^<]+</td><td[^>]*>([\d.]+)</td>', part)[:7]
    assert float(value) == pytest.approx(np.mean([float(each) for each in own]), abs=1e-3)


def test_the_verdict_has_nothing_to_say_against_a_perfect_model():
    truth = [[1, 0], [0, 1], [1, 1]]
    beside = {"baseline": "other", "baseline_measures": {"micro F1": 0.9}}
    assert judgement(subject_of(truth, truth, measures={"micro F1": 1.0}, **beside))[1] == []


def test_thresholds_come_from_the_training_data_alone(pages, tmp_path):
    """A report on other test rows has the same thresholds."""

    def thresholds(path):
        part = path.read_text().split(">Labels<")[1].split("</details>")[0]
        return dict(re.findall(r"<tr><td class=\"w\">([^<]*)</td>.*?<td[^>]*>([^<]*)</td></tr>", part))

    model, few = str(pages["multilabel"].parent / "flags.mm"), tmp_path / "few.csv"
    assert main(["datasets", "convert", "flags", str(few), "--split", "train"]) == 0
    path = tmp_path / "r.html"
    assert main(["report", model, str(few), "--labels", "7", "--train", "flags", "-o", str(path)]) == 0
    found = thresholds(pages["multilabel"])
    assert len(found) == 7 and thresholds(path) == found


def test_few_epochs_are_told_in_figures(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "flags", "-m", "multilabel", "--max-iter", "2", "-o", "m.mm"]) == 0
    assert main(["report", "m.mm", "flags"]) == 0
    text = (tmp_path / "report.html").read_text()
    training = text[text.index(">Training<") :]
    training = training[: training.index("</details>")]
    assert "<img" not in training and "relative gap" in training and "<td>2</td>" in training


PROBE = """
<script>
window.addEventListener("load", () => {
  const broken = [...document.images].filter(i => !i.complete || i.naturalWidth === 0).length;
  const edge = document.documentElement.clientWidth + 1;
  const wide = [...document.querySelectorAll("body *")].filter(e => !e.closest(".scroll"))
    .filter(e => e.getBoundingClientRect().right > edge).map(e => e.tagName);
  const cut = [...document.querySelectorAll(".scroll")].filter(e => e.scrollWidth > e.clientWidth + 1);
  const box = document.querySelector(".sorted"), rows = [...box.querySelectorAll("tbody tr")];
  const column = k => [...box.querySelectorAll("tbody tr")].map(row => parseFloat(row.cells[k].textContent));
  box.querySelectorAll("th button")[5].click();
  const down = column(5);
  box.querySelectorAll("th button")[5].click();
  const up = column(5);
  const search = box.querySelector("input");
  search.value = rows[0].cells[0].textContent.toUpperCase();
  search.dispatchEvent(new Event("input"));
  const found = rows.filter(row => !row.hidden).length;
  const result = {broken, wide, cut: cut.map(e => e.textContent.slice(0, 60)), down, up, found,
    images: document.images.length, width: document.documentElement.clientWidth,
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
        # Every figure is on the screen, and the labels can be sorted and searched.
        assert result["cut"] == []
        assert result["down"] == sorted(result["up"], reverse=True) and result["up"] == sorted(result["up"])
        assert 1 <= result["found"] <= len(result["up"])


def test_advice_names_options_that_exist():
    source = inspect.getsource(verdict)
    options = {
        word for command in (fit_command, report_command) for one in command.params for word in one.opts
    }
    options |= {f"--{name.replace('_', '-')}" for name in MultiLabelSVC().get_params()}
    named = set(re.findall(r"--[A-Za-z][a-z-]*", source))
    assert named and named <= options
    assert "maxmargin compare" not in source and "use maxmargin.baselines.ThresholdTuner" in source
