"""Why candidates were not chosen, as one small integer per candidate."""

from collections.abc import Mapping
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

LossCodes = NDArray[np.int8]


class Loss(StrEnum):
    """Why a candidate was not chosen."""

    REGION = "region not allowed"
    QUALITY = "quality below the floor"
    CAPACITY = "request does not fit its KV cache"
    SHARE = "region has its largest share of recent requests"
    POWER = "too little power left"
    TTFT = "TTFT above the SLO"
    TPOT = "TPOT above the SLO"
    QUEUE = "would delay those that wait there beyond the TTFT SLO"
    UNKNOWN = "latency unknown while others are known"
    DOMINATED = "dominated by another plan"
    CARBON = "more carbon"
    ENERGY = "more energy"
    COST = "more cost"
    LATENCY = "slower"
    RISK = "more risk"
    SCORE = "lower score"
    TIE = "equal, another was drawn"
    SESSION = "the session stays where its KV cache is"
    NEIGHBOURS = "its prefill would slow those that decode there beyond the TPOT SLO"


INFEASIBLE = frozenset(
    {
        Loss.REGION,
        Loss.QUALITY,
        Loss.CAPACITY,
        Loss.SHARE,
        Loss.POWER,
        Loss.UNKNOWN,
        Loss.TTFT,
        Loss.TPOT,
        Loss.QUEUE,
        Loss.NEIGHBOURS,
    }
)
"""Those that are no comparison with another candidate."""

CHOSEN = 0
"""The code of a candidate that did not lose."""
_LOSSES: tuple[Loss | None, ...] = (None, *Loss)
CODE: Mapping[Loss, int] = {loss: code for code, loss in enumerate(Loss, start=1)}


def decoded(codes: LossCodes) -> tuple[Loss | None, ...]:
    """The losses by candidate; None where it did not lose."""
    return tuple(_LOSSES[code] for code in codes.tolist())


def loss_of(code: int) -> Loss | None:
    """One candidate's loss."""
    return _LOSSES[code]
