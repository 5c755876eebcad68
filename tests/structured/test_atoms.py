"""Lists of answers that grow."""

import numpy as np
import pytest

from maxmargin.structured.atoms import Atoms


@pytest.mark.nojit
def test_more_room_keeps_every_atom():
    """Blocks that are full and in use get twice the room; what all of them hold stays as it is."""
    rng = np.random.default_rng(0)
    widths, capacity, filled = np.array([2, 3, 1, 4]), np.array([2, 3, 4, 2]), np.array([2, 2, 4, 2])
    atoms = Atoms.empty(widths, capacity)
    atoms.filled[:] = filled
    for part in (atoms.answers, atoms.losses, atoms.alpha, atoms.grams):
        part[:] = rng.integers(1, 100, part.size)
    # The last block is full, but one of its two atoms is cache.
    atoms.alpha[atoms.atom_at[3] + 1] = 0.0
    new = atoms.enlarged()
    assert new.capacity.tolist() == [4, 3, 8, 2] and new.filled.tolist() == filled.tolist()
    for i, m in enumerate(filled):
        (answers, alpha, gram), (more, shares, products) = atoms.of(i), new.of(i)
        assert more.shape == (new.capacity[i], widths[i]) and products.shape == (new.capacity[i],) * 2
        np.testing.assert_array_equal(more[:m], answers[:m])
        np.testing.assert_array_equal(shares, np.pad(alpha[:m], (0, new.capacity[i] - m)))
        np.testing.assert_array_equal(products[:m, :m], gram[:m, :m])
        old_at, new_at = atoms.atom_at[i], new.atom_at[i]
        np.testing.assert_array_equal(new.losses[new_at : new_at + m], atoms.losses[old_at : old_at + m])
    assert new.enlarged() is new
