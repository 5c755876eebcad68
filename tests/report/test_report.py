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
from sklearn.metrics import f1_score

from maxmargin import MultiLabelSVC
from maxmargin.cli import main
from maxmargin.cli.commands import fit_command, report_command
from maxmargin.metrics import label_log_loss
from maxmargin.report import Subject, verdict
from maxmargin.report.errors import mistakes
from maxmargin.report.labels import label_sections
from maxmargin.report.probabilities import probabilities
from maxmargin.report.verdict import constant_measure, judgement

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
        ("mail-stream", "ranking", []),
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
    # Distance from the optimum, threshold curves, four heat maps of correlations.
    assert len(reader.images) == 1 + 1 + 4
    assert all(image["alt"] and image["src"].startswith("data:image/svg+xml") for image in reader.images)
    assert "training labels, prior, test labels, predicted" in pages["multilabel"].read_text()
    assert "Trained on 129 samples of flags. Judged on 65 samples" in pages["multilabel"].read_text()
    assert "scikit-learn OvR LinearSVC" in pages["multilabel"].read_text()
    for path in pages.values():
        assert not read(path).outside


@pytest.mark.parametrize(
    ("model", "between"),
    [
        (
            "multilabel",
            [
                "Labels", "First labels", "Thresholds", "Label correlations", "Training",
                "Most weighted features",
            ],
        ),
        (
            "submodular",
            [
                "Labels", "First labels", "Label correlations", "Training", "Most weighted features",
                "Attractive pairs",
            ],
        ),
        ("sparse-multiclass", ["Labels", "Confusions", "Basis vectors"]),
        ("multiclass", ["Labels", "Confusions", "Training", "Support vectors"]),
        ("ranking", ["Labels", "Ranking", "Confusions", "Most weighted features"]),
        ("chain", ["Labels", "Confusions", "Training", "Most weighted features", "Transitions"]),
    ],
)  # fmt: skip
def test_every_family_has_its_sections(pages, model, between):
    headings = read(pages[model]).headings
    assert headings[0].startswith(f"{model} on ")
    assert headings[1:] == [*between, "Errors", "Versions"]


def test_errors_show_what_spoke_for_them(tmp_path, monkeypatch):
    """One sample lies on the wrong side, because of its second feature."""
    monkeypatch.chdir(tmp_path)
    rows = "1,0,x\n0,1,y\n" * 6
    (tmp_path / "train.csv").write_text("one,two,kind\n" + rows)
    (tmp_path / "test.csv").write_text("one,two,kind\n" + rows + "0,3,x\n")
    assert main(["fit", "train.csv", "-m", "multiclass", "--target", "kind", "-o", "m.mm"]) == 0
    assert main(["report", "m.mm", "test.csv"]) == 0
    text = (tmp_path / "report.html").read_text()
    assert "1 of 13 answers differ" in text
    errors = text[text.index(">Errors<") :]
    assert ">two +" in errors and ">one +" not in errors


def test_threshold_curves_treat_equal_scores_as_one():
    from maxmargin.report.pictures import f1_curve

    at, f1 = f1_curve(np.array([1, 0, 1, 0]), np.array([2.0, 1.0, 1.0, 0.0]))
    np.testing.assert_array_equal(at, [2, 1, 0])
    np.testing.assert_allclose(f1, [2 / 3, 4 / 5, 2 / 3])


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
    monkeypatch.setattr("maxmargin.cli.commands.find_spec", lambda name: None)
    assert main(["report", "m.mm", "iris"]) == 1
    assert "pip install matplotlib" in capsys.readouterr().err


def subject_of(truth, predicted, **more):
    """A subject with a model that says nothing of itself."""
    truth, predicted = np.array(truth), np.array(predicted)
    names = tuple(f"l{k}" for k in range(truth.shape[1]))
    given = {"measures": {"micro F1": 0.5}, "seconds": 0.0, "label_names": names} | more
    return Subject("m", "d", object(), np.zeros((len(truth), 2)), truth, predicted, **given)


def test_sparse_weights_are_shown():
    X, Y = np.eye(4)[:, :3], np.array([[1, 0], [0, 1], [1, 1], [0, 0]])
    model = MultiLabelSVC(memory_limit=0, cull=0).fit(X, Y)
    about = Subject("m", "d", model, X, Y, 1 - Y, {}, 0.0, label_names=("a", "b"))
    np.testing.assert_array_equal(about.weights.toarray(), model.coef_.toarray())
    assert "4 of 4 answers differ" in mistakes(about) and "features that spoke for the error" in mistakes(
        about
    )


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
        "micro F1 0.5 on 4 samples, against 0.75 of other and 0.7368 of the best constant answer, chosen on "
        "these samples themselves."
    )
    told = " ".join(advice)
    assert "other is better in micro F1 (0.5 against 0.75)" in told
    assert "1 of 3 labels is never predicted: l1." in told
    assert "take macro F1 from 0.4667 to 0.9524, and predict l1 above -2;" in told
    assert "1 of 3 labels is predicted worse (in F1) than by always saying yes: l2 (0.4 < 0.8571)." in told


@pytest.mark.parametrize("seed", range(20))
def test_no_constant_answer_is_better_than_the_one_in_the_verdict(seed):
    """Rare labels, so that labels of half of the samples are seldom the best set."""
    rng = np.random.default_rng(seed)
    truth = (rng.random((15, 5)) < rng.uniform(0.05, 0.6, 5)).astype(int)
    sets = np.array(list(itertools.product([0, 1], repeat=5)))
    best = max(f1_score(truth, np.tile(each, (15, 1)), average="micro", zero_division=0) for each in sets)
    assert constant_measure(truth, truth, "micro F1") == pytest.approx(best)


def test_the_constant_answer_is_chosen_on_the_training_labels_where_they_are_known():
    """Training knows l0 and l1 together, the samples judged have l2."""
    truth = np.array([[0, 1, 1], [0, 0, 1]])
    training = np.array([[1, 1, 0], [1, 1, 0], [1, 0, 0]])
    about = subject_of(truth, truth, training_labels=training)
    # Always l0 and l1: one hit, seven labels said or true.
    assert constant_measure(truth, training, "micro F1") == pytest.approx(2 / 7)
    assert "0.2857 of the best constant answer, chosen on the training labels." in judgement(about)[0]
    assert constant_measure(truth, training, "top label right") == 0.0
    assert constant_measure(truth, truth, "top label right") == 1.0


def test_probabilities_stand_beside_the_shares_of_the_training_labels():
    truth, training = np.array([[1, 0], [1, 1]]), np.array([[1, 0], [0, 0], [1, 0], [1, 0]])
    about = subject_of(truth, truth, probabilities=truth * 0.8 + 0.1, training_labels=training)
    told = np.tile([4 / 6, 1 / 6], (2, 1))
    page = probabilities(about)
    assert "share of each label in the training samples" in page
    assert f"<td>{label_log_loss(truth, told):.4g}</td>" in page
    assert "share of each label in the test samples" in probabilities(replace(about, training_labels=None))


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
    told = " ".join(judgement(calibrated())[1])
    assert "take macro F1 from 0.5 to 1, and predict l1 above 0;" in told
    assert "at scores above 0 the same model has micro F1 1 instead of 0.6667, macro F1 1 instead" in told
    assert "against 0.9): because of the cut at a probability of 0.5, not of C." in told
    assert "choose C" not in told
    page = "".join(section.html for section in label_sections(calibrated()))
    assert "F1 at p &gt; 0.5" in page and "F1 at 0" not in page
    assert '<td class="w">l1</td><td>0.000</td><td>1.000</td>' in page


def test_the_cut_is_blamed_only_where_scores_above_zero_do_better():
    """The other model is better than both, or the model predicts at 0 itself."""
    ours = calibrated(scores=np.full((4, 2), -1.0))
    told = " ".join(judgement(ours)[1])
    assert "against 0.9): choose C" in told and "0.5, not of C" not in told and "same model" not in told
    plain = replace(ours, probabilities=None, scores=np.where(ours.predicted, 1.0, -1.0))
    assert "other is better" in " ".join(judgement(plain)[1])
    page = "".join(section.html for section in label_sections(plain))
    assert "F1 at 0" in page and "F1 at p" not in page


def test_errors_of_a_calibrated_model_are_ordered_by_its_probabilities():
    """Row 1 is missed at 0.1, row 0 at 0.4, though its score is further from 0."""
    truth, chances = np.array([[1], [1]]), np.array([[0.4], [0.1]])
    about = subject_of(truth, chances > 0.5, scores=np.array([[3.0], [1.0]]), probabilities=chances)
    about = replace(about, X=np.ones((2, 2)))
    assert re.findall(r"<tr><td>(\d)</td>", mistakes(about)) == ["1", "0"]


def test_the_report_of_a_calibrated_model_agrees_with_itself(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fit = ["fit", "flags", "-m", "multilabel", "--scale", "standard", "--probabilities", "sigmoid"]
    assert main([*fit, "-o", "m.mm"]) == 0
    assert main(["report", "m.mm", "flags", "--train", "flags"]) == 0
    text = (tmp_path / "report.html").read_text()
    macro = re.search(r">macro F1</td><td[^>]*>(?:<b[^>]*>)?([\d.]+)", text)[1]
    assert f"take macro F1 from {macro} to " in text

    def first_figures(heading):
        part = text[text.index(f">{heading}<") :]
        rows = re.findall(r'<tr><td class="w">([^<]+)</td><td[^>]*>([\d.]+)</td>', part)
        return dict(rows[:7])

    assert len(first_figures("Labels")) == 7 and first_figures("Thresholds") == first_figures("Labels")


def test_the_verdict_has_nothing_to_say_against_a_perfect_model():
    truth = [[1, 0], [0, 1], [1, 1]]
    beside = {"baseline": "other", "baseline_measures": {"micro F1": 0.9}}
    assert judgement(subject_of(truth, truth, measures={"micro F1": 1.0}, **beside))[1] == []


def test_thresholds_come_from_the_training_data_alone(pages, tmp_path):
    """A report on other test rows has the same thresholds."""

    def thresholds(text):
        part = text[text.index(">Thresholds<") :]
        part = part[: part.index("</details>")]
        return dict(re.findall(r"<tr><td class=\"w\">([^<]*)</td>.*?<td>([^<]*)</td></tr>", part))

    whole = pages["multilabel"].read_text()
    model, few = str(pages["multilabel"].parent / "flags.mm"), tmp_path / "few.csv"
    assert main(["datasets", "convert", "flags", str(few), "--split", "train"]) == 0
    assert (
        main(["report", model, str(few), "--labels", "7", "--train", "flags", "-o", str(tmp_path / "r.html")])
        == 0
    )
    found = thresholds(whole)
    assert len(found) == 7 and thresholds((tmp_path / "r.html").read_text()) == found


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
    assert "compare" not in source and "in Python, maxmargin.baselines.ThresholdTuner" in source
