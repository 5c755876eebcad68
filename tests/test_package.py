"""What importing costs, how loops are compiled, how threads are counted."""

import os
import subprocess
import sys

import numpy as np
import pytest

import maxmargin
from maxmargin.core.threads import aligned_zeros, count_threads, ranges, transpose


def python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


def test_import_is_light():
    heavy = "('numba', 'matplotlib', 'click', 'rich', 'sklearn', 'scipy', 'pandas', 'polars')"
    done = python(f"import sys, maxmargin; print([m for m in {heavy} if m in sys.modules])")
    assert done.stdout.strip() == "[]", done.stderr
    assert (
        "numba" not in python("import sys, maxmargin; maxmargin.priors; print(*sys.modules)").stdout.split()
    )


def test_public_names_resolve():
    for name in maxmargin.__all__:
        assert getattr(maxmargin, name) is not None
    assert set(maxmargin.__all__) <= set(dir(maxmargin))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        maxmargin.nothing  # noqa: B018


FIT = (
    "import numpy as np; from maxmargin import MultiLabelSVC;"
    "print(MultiLabelSVC(random_state=0).fit(np.eye(4), [[0, 1], [1, 0], [1, 1], [0, 0]]).n_iter_)"
)


def test_numba_may_be_switched_off():
    reference = python(FIT)
    assert reference.returncode == 0, reference.stderr
    plain = python(FIT, NUMBA_DISABLE_JIT="1")
    assert plain.stdout == reference.stdout, plain.stderr


def test_a_stored_model_predicts_without_numba(tmp_path):
    model = maxmargin.MultiLabelSVC(random_state=0).fit(np.eye(4), [[0, 1], [1, 0], [1, 1], [0, 0]])
    maxmargin.save(model, tmp_path / "m.mm")
    done = python(
        "import sys; sys.modules['numba'] = None; import maxmargin, numpy as np;"
        f"print(maxmargin.load({str(tmp_path / 'm.mm')!r}).predict(np.eye(4)).tolist())"
    )
    assert done.stdout.strip() == str(model.predict(np.eye(4)).tolist()), done.stderr
    assert "numba cannot be imported" in done.stderr and len(done.stderr.splitlines()) == 1


def test_threads():
    assert count_threads(None) == 1 and count_threads(3) == 3 and count_threads(-1) >= 1
    assert count_threads(-1000) == 1
    with pytest.raises(ValueError, match="n_jobs == 0"):
        count_threads(0)
    matrix = np.arange(35.0).reshape(7, 5)
    for n in (1, 2, 3):
        turned, back = np.empty((5, 7)), np.empty((7, 5))
        transpose(matrix, turned, n)
        np.testing.assert_array_equal(turned, matrix.T)
        transpose(turned, back, n)
        np.testing.assert_array_equal(back, matrix)
    assert ranges(101, 2) == [(0, 50), (50, 101)] and ranges(2, 3) == [(0, 1), (1, 2)]
    for dtype in (np.float32, np.float64):
        zeros = aligned_zeros(3, 17, dtype)
        assert zeros.shape == (3, 32) and zeros.dtype == dtype and zeros.flags.c_contiguous
        assert zeros.ctypes.data % 64 == 0 and not zeros.any()
        for n_rows in (0, 1, 5):
            shared = aligned_zeros(n_rows, 17, dtype, n_threads=3)
            assert shared.shape == (n_rows, 32) and shared.dtype == dtype and not shared.any()
