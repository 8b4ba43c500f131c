"""Simulated endpoints as columns of a decision (`heliotrope.decide.candidates`).

What a picker would know from its last scrape, with its own dispatches projected on it, is known exactly here; what
learned models read beside that is unknown.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heliotrope.cache.action import KvAction
from heliotrope.decide.candidates import Candidates, Hardware, RegionView, region_index
from heliotrope.decide.rows import describe
from heliotrope.engine.model import EngineModel
from heliotrope.predict.features import hardware_matrix

Float64 = NDArray[np.float64]


def hardware_rows(models: Sequence[EngineModel]) -> Float64:
    """Row i is `heliotrope.decide.rows.describe` of what engine i runs on; shape (n, H)."""
    return hardware_matrix(
        [describe(Hardware(m.accelerator, m.tensor_parallel, m.model, "both"), m).row() for m in models]
    )


def endpoint_columns(
    endpoints: Sequence[str],
    regions: Sequence[str],
    region_views: Mapping[str, RegionView],
    *,
    engine_rows: Float64,
    hardware: Float64,
    running: ArrayLike,
    waiting: ArrayLike,
    waiting_tokens: ArrayLike,
    oldest_waiting_seconds: ArrayLike,
    kv_tokens: ArrayLike,
    prefill_duty: ArrayLike,
    cached_tokens: ArrayLike,
    quality: ArrayLike,
    price_per_hour: ArrayLike,
    embodied_grams: ArrayLike,
    embodied_lifetime_seconds: ArrayLike,
    kv_capacity_tokens: ArrayLike,
    sm_clock_mhz: ArrayLike,
    power_watts: ArrayLike | None = None,
) -> Candidates:
    """Endpoints that all score the same, without plans that move KV.

    All are columns of `Candidates`, of the same name and with one entry per endpoint; `hardware` is what
    `hardware_rows` makes, and `power_watts` may be unknown (None).
    """
    n = len(endpoints)
    names, codes = region_index(regions)
    unknown = np.full(n, np.nan)

    def column(values: ArrayLike) -> Float64:
        return np.asarray(values, dtype=np.float64)

    cached = column(cached_tokens)
    return Candidates(
        endpoints=tuple(endpoints),
        endpoint_count=n,
        regions=tuple(regions),
        region_names=names,
        region_codes=codes,
        engine_rows=engine_rows,
        running=column(running),
        waiting=column(waiting),
        waiting_tokens=column(waiting_tokens),
        oldest_waiting_seconds=column(oldest_waiting_seconds),
        kv_tokens=column(kv_tokens),
        prefill_duty=column(prefill_duty),
        cached_tokens=cached,
        quality=column(quality),
        price_per_hour=column(price_per_hour),
        base_score=np.zeros(n),
        embodied_grams=column(embodied_grams),
        embodied_lifetime_seconds=column(embodied_lifetime_seconds),
        region_views=region_views,
        hardware_rows=hardware,
        prefill_tokens_in_flight=unknown,
        decode_tokens_in_flight=unknown,
        kv_capacity_tokens=column(kv_capacity_tokens),
        power_watts=unknown if power_watts is None else column(power_watts),
        sm_clock_mhz=column(sm_clock_mhz),
        seconds_since_piece=unknown,
        recent_running=unknown,
        recent_prompt_tokens_per_second=unknown,
        waiting_squared_tokens=unknown,
        step_seconds=unknown,
        step_prefills=unknown,
        kv_actions=tuple(KvAction.ROUTE_TO_OWNER if c > 0.0 else KvAction.RECOMPUTE for c in cached.tolist()),
        kv_sources=(None,) * n,
        transfer_seconds=np.zeros(n),
        transfer_joules=np.zeros(n),
    )
