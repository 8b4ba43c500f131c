"""Requests and options as decisions see them: frozen data, and columns."""

from collections.abc import Mapping

import numpy as np

from heliotrope.cache.action import KvAction
from heliotrope.decide.candidates import Candidates, FloatColumn, RegionView
from heliotrope.decide.request import RequestProfile
from heliotrope_epp.plugins.interface import LlmRequest, Options
from heliotrope_epp.plugins.pickers.fixed import FixedColumns, FixedColumnsCache

_OWN_CACHE = (KvAction.RECOMPUTE, KvAction.ROUTE_TO_OWNER)
"""What an endpoint does with a prompt of which it caches nothing, and something."""


def request_profile(request: LlmRequest) -> RequestProfile:
    """The request as a decision sees it, without its text."""
    return RequestProfile(
        request_id=request.request_id,
        model=request.model,
        prompt_tokens=request.prompt_tokens,
        expected_output_tokens=request.expected_output_tokens,
        streaming=request.streaming,
        ttft_slo_seconds=request.ttft_slo_seconds,
        tpot_slo_seconds=request.tpot_slo_seconds,
        reasoning=request.reasoning,
        media=request.media,
    )


def candidates_of(
    options: Options,
    scores: FloatColumn,
    regions: Mapping[str, RegionView],
    fixed: FixedColumns | None = None,
    last_served: int | None = None,
) -> Candidates:
    """The options as columns, in their order; what is unknown is NaN or None.

    `fixed` are the columns of these options that only change with the resources, if they are at hand; `last_served` is
    the one that served the session's last turn.
    """
    if fixed is None:
        fixed = FixedColumnsCache().of(options)
    (
        running,
        waiting,
        waiting_tokens,
        oldest_waiting_seconds,
        kv_tokens,
        prefill_duty,
        prefill_tokens_in_flight,
        decode_tokens_in_flight,
        kv_capacity_tokens,
        power_watts,
        sm_clock_mhz,
        seconds_since_piece,
        recent_running,
        recent_prompt_tokens_per_second,
        waiting_squared_tokens,
        step_seconds,
        step_prefills,
        _,
    ) = options.loads.table  # the lines in the order of `Column`; asking for each of them takes longer
    n = len(options)
    actions = list(map(_OWN_CACHE.__getitem__, (options.cached_tokens > 0.0).tolist()))
    if last_served is not None and actions[last_served] is KvAction.ROUTE_TO_OWNER:
        actions[last_served] = KvAction.LOCAL_HIT
    return Candidates(
        endpoints=fixed.endpoints,
        endpoint_count=n,
        regions=fixed.regions,
        region_names=fixed.region_names,
        region_codes=fixed.region_codes,
        engine_rows=fixed.engine_rows,
        running=running,
        waiting=waiting,
        waiting_tokens=waiting_tokens,
        oldest_waiting_seconds=oldest_waiting_seconds,
        kv_tokens=kv_tokens,
        prefill_duty=prefill_duty,
        cached_tokens=options.cached_tokens,
        quality=fixed.quality,
        price_per_hour=fixed.price_per_hour,
        base_score=scores,
        embodied_grams=fixed.embodied_grams,
        embodied_lifetime_seconds=fixed.embodied_lifetime_seconds,
        region_views=regions,
        hardware_rows=fixed.hardware_rows,
        prefill_tokens_in_flight=prefill_tokens_in_flight,
        decode_tokens_in_flight=decode_tokens_in_flight,
        kv_capacity_tokens=kv_capacity_tokens,
        power_watts=power_watts,
        sm_clock_mhz=sm_clock_mhz,
        seconds_since_piece=seconds_since_piece,
        recent_running=recent_running,
        recent_prompt_tokens_per_second=recent_prompt_tokens_per_second,
        waiting_squared_tokens=waiting_squared_tokens,
        step_seconds=step_seconds,
        step_prefills=step_prefills,
        kv_actions=tuple(actions),
        kv_sources=(None,) * n,
        transfer_seconds=np.zeros(n),
        transfer_joules=np.zeros(n),
        cached_deviation_tokens=options.cached_deviation_tokens,
    )
