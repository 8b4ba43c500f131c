"""The sums of leaves that forests give for rows.

numba is imported on the first use, so that a process without a learned model does not pay for it (about 140 MB).
Machine code is kept in numba's cache folder where one can be written, else compiled again at every start.
"""

import numpy as np
from numpy.typing import NDArray

from heliotrope.predict.features import FEATURE_COUNT, Matrix
from heliotrope.predict.forest import Forest


def warm_up() -> None:
    """Compile now (some seconds without a cache) instead of at the first call: what models answer by, too."""
    from heliotrope.predict.answers import write_answers
    from heliotrope.predict.costs import kinds_of
    from heliotrope.predict.questions import write_walk
    from heliotrope.predict.regimes import regimes_of

    write_walk()
    write_answers()
    row = np.zeros((1, FEATURE_COUNT))
    regimes_of(row)
    kinds_of(row)


def walk(rows: Matrix, forest: Forest, begins: NDArray[np.int32]) -> NDArray[np.float64]:
    """Sums of leaves.

    Args:
        rows: (n, F) with F the number of features that the forest was checked against; contiguous.
        forest: of one or more targets, `heliotrope.predict.forest.joined`.
        begins: index of each target's first tree, and the number of trees behind the last.

    Returns:
        (targets, n), exactly LightGBM's raw predictions.
    """
    from heliotrope.predict.questions import write_walk

    sums = np.empty((len(begins) - 1, len(rows)))
    if len(rows):
        write_walk()(rows, begins, *forest.arrays, sums)
    return sums
