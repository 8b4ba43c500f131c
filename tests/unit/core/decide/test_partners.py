"""Which pairs are kept where there are many, against sorting."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.decide.phase_kernel import take_partners

FOUND = st.lists(st.tuples(st.integers(-1, 9), st.integers(0, 5), st.integers(-1, 9), st.integers(0, 5)), max_size=40)


@given(FOUND, st.integers(0, 12))
def test_the_best_of_each_kind_are_kept(found: list[tuple[int, int, int, int]], half: int) -> None:
    table = np.array(found, dtype=np.intp).reshape(-1, 4).T
    partners, bounds = np.ascontiguousarray(table[[0, 2]]), table[[1, 3]] / 3.0
    most = 2 * half

    kinds = [np.flatnonzero(line >= 0) for line in partners]
    there = len(kinds[0]) + len(kinds[1])
    if there > most:
        first = min(len(kinds[0]), max(half, most - len(kinds[1])))
        ordered = [rows[np.argsort(bounds[kind][rows], kind="stable")] for kind, rows in enumerate(kinds)]
        kinds = [ordered[0][:first], ordered[1][: most - first]]
    taken = np.empty((2, min(there, most)), dtype=np.intp)
    take_partners(partners, bounds, most, taken)

    assert taken[0].tolist() == [*kinds[0].tolist(), *kinds[1].tolist()]
    assert taken[1].tolist() == [*partners[0][kinds[0]].tolist(), *partners[1][kinds[1]].tolist()]
