"""The requests that are assigned together, as columns: position i of every column is request i."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatColumn = NDArray[np.float64]
FloatMatrix = NDArray[np.float64]
BoolColumn = NDArray[np.bool_]
BoolMatrix = NDArray[np.bool_]
IntColumn = NDArray[np.int64]

NO_HOME = -1
"""In `Window.home`: the request belongs to no session that is anywhere."""


@dataclass(frozen=True, slots=True)
class Window:
    """Columns of length n and matrices of shape (n, d) for d regions, in the order in which the requests came."""

    prompt_tokens: FloatColumn
    output_tokens: FloatColumn
    """Expected; NaN where nobody knows."""
    waited_seconds: FloatColumn
    """Since its arrival and until now: counts in its TTFT."""
    ttft_slo_seconds: FloatColumn
    """Infinite where nothing is promised; so for TPOT."""
    tpot_slo_seconds: FloatColumn
    cached_tokens: FloatMatrix
    """Prompt tokens that need no prefill in a region; NaN is unknown and counts as none."""
    allowed: BoolMatrix
    """Where the request may be served: data residency, its session's gate, a region that is up. Hard."""
    home: IntColumn
    """The region that the request's session is in, else `NO_HOME`."""

    def __len__(self) -> int:
        return len(self.prompt_tokens)
