"""The progress bar of a fit, and estimators where scikit-learn has no callbacks yet."""

import io
import pickle

import pytest
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV

from maxmargin import MultiClassSVC
from maxmargin.edge.estimator import WithoutCallbacks
from maxmargin.progress import ProgressBar, _Notebook

X, y = load_iris(return_X_y=True)


def test_a_bar_goes_to_its_end_as_the_gap_falls():
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    display = Progress("{task.description}", BarColumn(), TextColumn("{task.fields[gap]}"), console=console)
    model = MultiClassSVC(solver="bcfw", tol=0.2, random_state=0)
    with display:
        model.set_callbacks(ProgressBar(bar=display)).fit(X, y)
    assert [task.completed for task in display.tasks] == [pytest.approx(1.0)]
    shown_text = screen.getvalue()
    assert "MultiClassSVC" in shown_text and "gap " in shown_text and "epoch " in shown_text


def test_a_bar_of_its_own_is_stopped_even_when_the_fit_fails(capsys):
    bar = ProgressBar("mine")
    MultiClassSVC().set_callbacks(bar).fit(X, y)
    assert bar._own is None and "mine" in capsys.readouterr().out
    bar = ProgressBar()
    with pytest.raises(ValueError, match="inconsistent"):
        MultiClassSVC().set_callbacks(bar).fit(X, y[:-1])
    assert bar._own is None


def test_a_search_with_a_bar_runs_and_travels():
    model = MultiClassSVC().set_callbacks(ProgressBar("search"))
    search = GridSearchCV(model, {"C": [0.1, 1.0]}, cv=2, n_jobs=1).fit(X, y)
    assert search.best_score_ > 0.9
    assert pickle.loads(pickle.dumps(ProgressBar("x"))).description == "x"


def test_in_a_notebook_one_line_is_replaced():
    shown = []

    class Line:
        def update(self, text, raw):
            shown.append(text["text/plain"])

    def display(text, raw, display_id):
        shown.append(text["text/plain"])
        return Line()

    bar = _Notebook(display)
    bar.start()
    model = MultiClassSVC(solver="bcfw", tol=0.2, random_state=0)
    model.set_callbacks(ProgressBar("mine", bar)).fit(X, y)
    assert shown[0].startswith("mine ─") and "━" * 30 in shown[-1] and "gap " in shown[-1]
    assert len(shown) == model.n_iter_ + 1


@pytest.mark.slow
def test_in_a_living_notebook():
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    code = (
        "from sklearn.datasets import load_iris\n"
        "from maxmargin import MultiClassSVC\n"
        "from maxmargin.progress import ProgressBar\n"
        "model = MultiClassSVC(solver='bcfw', tol=0.2, random_state=0).set_callbacks(ProgressBar('mine'))\n"
        "model.fit(*load_iris(return_X_y=True));"
    )
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    nbclient.NotebookClient(book, timeout=600, kernel_name="python3").execute()
    shown_text = [output["data"]["text/plain"] for output in book.cells[0].outputs if "data" in output]
    assert len(shown_text) == 1 and shown_text[0].startswith("mine ━") and "gap " in shown_text[0]


def test_estimators_do_without_callbacks():
    class Older(WithoutCallbacks):
        """As with scikit-learn before 1.9."""

    context = Older()._init_callback_context(max_subtasks=3)
    assert context.subcontext(task_name="epoch").call_on_fit_task_end(estimator=None) is False
    assert context.call_on_fit_task_begin(estimator=None) is None
