"""Sparse matrices whose index arrays point outside of them are refused, and all others pass."""

import numpy as np
import pytest
import scipy.sparse as sp

from maxmargin.core.sparse_format import check_format

FORMATS = ("csr", "csc", "coo", "bsr", "lil", "dok", "dia")


def matrix(kind="csr"):
    values = np.random.default_rng(0).random((12, 8))
    return sp.csr_array(np.where(values < 0.4, values, 0.0)).asformat(kind)


def altered(kind, **arrays):
    broken = matrix(kind).copy()
    for name, change in arrays.items():
        value = getattr(broken, name).copy()
        setattr(broken, name, change(value))
    return broken


def lists_with(column):
    broken = matrix("lil")
    broken.rows[0][-1] = column
    return broken


def put(k, value):
    def change(array):
        array[k] = value
        return array

    return change


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("empty", [False, True])
def test_matrices_of_all_formats_pass(kind, empty):
    given = sp.csr_array((12, 8)).asformat(kind) if empty else matrix(kind)
    np.testing.assert_array_equal(check_format(given, "X").toarray(), given.toarray())


def test_unsorted_and_repeated_entries_pass_and_stay():
    given = sp.csr_array((np.ones(4), [3, 1, 1, 0], [0, 3, 3, 4]), shape=(3, 4))
    assert check_format(given, "X") is given
    assert given.indices.tolist() == [3, 1, 1, 0] and not given.has_sorted_indices


def test_what_is_not_sparse_passes():
    for given in (None, [1], np.ones(3)):
        assert check_format(given, "X") is given


BROKEN = {
    "an index too large": (altered("csr", indices=put(3, 8)), r"indices holds 8, .* from 0 to 7"),
    "an index below zero": (altered("csr", indices=put(3, -1)), r"indices holds -1,"),
    "a huge index": (altered("csc", indices=put(-1, 2**31 - 1)), r"csc matrix: indices holds 2147483647"),
    "of blocks": (altered("bsr", indices=put(0, 99)), r"bsr matrix: indices holds 99"),
    "a start after zero": (altered("csr", indptr=put(0, 1)), r"indptr must start at 0 and never decrease"),
    "a decrease": (altered("csr", indptr=put(4, 10**6)), r"indptr must start at 0 and never decrease"),
    "an end behind the entries": (altered("csr", indptr=put(-1, 10**6)), r"indptr ends at 1000000"),
    "too few rows": (altered("csr", indptr=lambda a: a[:-2]), r"indptr must hold 13 integers"),
    "fractions": (altered("csr", indices=lambda a: a + 0.5), r"indices must hold an integer for each"),
    "too few values": (altered("csr", data=lambda a: a[:-2]), r"indices must hold an integer for each"),
    "a row outside": (altered("coo", row=put(2, 12)), r"coo matrix: row holds 12, .* from 0 to 11"),
    "a column outside": (altered("coo", col=put(2, -9)), r"coo matrix: col holds -9"),
    "diagonals without values": (altered("dia", data=lambda a: a[:1]), r"offsets and data differ"),
    "lists": (lists_with(99), r"csr matrix: indices holds 99"),
    "lists of two lengths": (altered("lil", rows=put(0, [1])), r"lil matrix: rows and data differ in length"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_others_are_refused_with_the_cure(what):
    broken, message = BROKEN[what]
    with pytest.raises(ValueError, match=rf"(?s)^y is a malformed .*{message}.*csr_array\(\(values, "):
        check_format(broken, "y")
