"""What `/v1/demand` says of each engine."""

from collections.abc import Iterable

from heliotrope_epp.datalayer.latency_buckets import Buckets
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.demand.page import BucketsLine, EndpointLine


def endpoint_lines(states: Iterable[EndpointState], now_s: float, stale_after_s: float) -> tuple[EndpointLine, ...]:
    """The engines, by name."""
    lines = []
    for state in sorted(states, key=_name):
        page = state.fresh_metrics(now_s, stale_after_s)
        if page is None:
            lines.append(EndpointLine(name=_name(state)))
            continue
        latency = state.latency
        lines.append(
            EndpointLine(
                name=_name(state),
                asleep=page.asleep,
                running=page.running,
                waiting=page.waiting,
                kv_usage=page.kv_usage,
                first_tokens_total=page.first_tokens_total,
                first_token_seconds_total=page.first_token_seconds_total,
                inter_tokens_total=page.inter_tokens_total,
                inter_token_seconds_total=page.inter_token_seconds_total,
                prompt_tokens_total=page.prompt_tokens_total,
                computed_prompt_tokens_total=page.computed_prompt_tokens_total,
                generation_tokens_total=page.generation_tokens_total,
                energy_millijoules=page.energy_millijoules,
                first_token=None if latency is None else _line(latency.first_token),
                output_token=None if latency is None else _line(latency.output_token),
            )
        )
    return tuple(lines)


def _line(buckets: Buckets | None) -> BucketsLine | None:
    if buckets is None:
        return None
    return BucketsLine(upper_seconds=buckets.upper_seconds, cumulative=buckets.cumulative)


def _name(state: EndpointState) -> str:
    return state.endpoint.pod or state.endpoint.name
