"""The loop of `heliotrope.decide.feasible`. Import it where it is first needed: see `heliotrope.compiled`."""

import numpy as np
from numpy.typing import NDArray

from heliotrope.compiled import compiled
from heliotrope.decide.losses import CODE, Loss, LossCodes

Row = NDArray[np.float64]
Flags = NDArray[np.bool_]

_REGION = CODE[Loss.REGION]
_QUALITY = CODE[Loss.QUALITY]
_CAPACITY = CODE[Loss.CAPACITY]
_UNKNOWN = CODE[Loss.UNKNOWN]
_TTFT = CODE[Loss.TTFT]
_TPOT = CODE[Loss.TPOT]
_QUEUE = CODE[Loss.QUEUE]


@compiled
def within(seconds: float, relative_error: float, certainty: float, slo_seconds: float) -> bool:
    """Whether a promise is kept; without one (NaN), whether the time is known."""
    if slo_seconds != slo_seconds:
        return bool(np.isfinite(seconds))
    return bool(seconds * (1.0 + certainty * relative_error) <= slo_seconds)


@compiled
def check(
    ttft_seconds: Row,
    tpot_seconds: Row,
    queue_ttft_seconds: Row,
    ttft_error: Row,
    tpot_error: Row,
    kv_fits: Flags,
    quality: Row,
    region_codes: NDArray[np.intp],
    region_allowed: Flags,
    quality_floor: float,
    certainty: float,
    ttft_slo_seconds: float,
    tpot_slo_seconds: float,
    queue_slo_seconds: float,
    result: Flags,
    broken: LossCodes,
) -> None:
    """Write which plans hold what, and the first constraint that each breaks.

    Args:
        ttft_seconds: of `Estimates`; so are the next two.
        tpot_seconds: see there.
        queue_ttft_seconds: see there.
        ttft_error: relative; so is the next.
        tpot_error: see there.
        kv_fits: whether the request can ever fit.
        quality: of the model there.
        region_codes: of `Candidates`; -1 takes the last value of the next.
        region_allowed: of each region, and of the unknown one.
        quality_floor: NaN: none; so for the last three.
        certainty: errors that an estimate must stay below its promise.
        ttft_slo_seconds: to this request; so is the next.
        tpot_slo_seconds: see there.
        queue_slo_seconds: TTFT that was promised to others.
        result: shape (3, n), written to: hard constraints hold; latency is known; promises are kept.
        broken: of each plan, written to; 0 where none is.
    """
    for i in range(len(kv_fits)):
        code = region_codes[i]
        in_region = region_allowed[code if code >= 0 else len(region_allowed) - 1]
        good = quality_floor != quality_floor or quality[i] >= quality_floor
        known = np.isfinite(ttft_seconds[i]) and np.isfinite(tpot_seconds[i])
        ttft_ok = within(ttft_seconds[i], ttft_error[i], certainty, ttft_slo_seconds)
        tpot_ok = within(tpot_seconds[i], tpot_error[i], certainty, tpot_slo_seconds)
        queue_ok = within(queue_ttft_seconds[i], ttft_error[i], certainty, queue_slo_seconds)
        result[0, i] = in_region and good and kv_fits[i]
        result[1, i] = known
        result[2, i] = known and ttft_ok and tpot_ok and queue_ok
        loss = 0
        if not in_region:
            loss = _REGION
        elif not good:
            loss = _QUALITY
        elif not kv_fits[i]:
            loss = _CAPACITY
        elif not known:
            loss = _UNKNOWN
        elif not ttft_ok:
            loss = _TTFT
        elif not tpot_ok:
            loss = _TPOT
        elif not queue_ok:
            loss = _QUEUE
        broken[i] = loss
