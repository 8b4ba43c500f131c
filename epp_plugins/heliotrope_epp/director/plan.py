"""What of a decision's plan is carried out at the endpoint that a request goes to."""

from heliotrope.cache.action import KvAction
from heliotrope.decide.plans import fetches
from heliotrope_epp.datalayer.store import EndpointStore
from heliotrope_epp.plugins.interface import Option
from heliotrope_epp.plugins.scheduled import ScheduleResult
from heliotrope_epp.transport.interface import Headers

KV_SOURCE_HEADER = "x-kv-cache-source-host-port"
"""llm-d's: the engine pulls the prompt's blocks from there before it prefills the rest."""

PREFILLER_HEADER = "x-prefiller-host-port"
"""llm-d's: the sidecar of the endpoint that decodes has the prompt prefilled there first."""


ENCODERS_HEADER = "x-encoder-hosts-ports"
"""llm-d's: the sidecar has images encoded there, in turn, before anything else."""


def kv_action(result: ScheduleResult, chosen: Option) -> KvAction | None:
    """How the endpoint comes by the prompt's KV; None without a decision."""
    plan = result.planned(chosen.key)
    return None if plan is None else plan.kv_action


def cached_tokens(result: ScheduleResult, chosen: Option, prompt_tokens: int) -> float:
    """Prompt tokens that need no prefill there: all but one where another endpoint prefills."""
    if result.pick.prefill is not None:
        return prompt_tokens - 1.0
    plan = result.planned(chosen.key)
    return chosen.cached_tokens if plan is None else float(plan.candidates.cached_tokens[plan.row])


def fetches_blocks(result: ScheduleResult, chosen: Option) -> bool:
    """Whether blocks are brought there for this request."""
    if result.pick.prefill is not None:
        return True
    action = kv_action(result, chosen)
    return action is not None and fetches(action)


def source_headers(result: ScheduleResult, chosen: Option, store: EndpointStore) -> Headers:
    """What tells the engine where to pull from, and its sidecar where to encode and prefill.

    Empty where the plan does neither, or its source is gone.
    """
    encoders = [option.state.endpoint.host_port for option in result.pick.encoders]
    told: Headers = ((ENCODERS_HEADER, ",".join(encoders)),) if encoders else ()
    if result.pick.prefill is not None:
        return (*told, (PREFILLER_HEADER, result.pick.prefill.state.endpoint.host_port))
    plan = result.planned(chosen.key)
    source = None if plan is None else plan.kv_source
    state = None if source is None else store.get(source)
    return told if state is None else (*told, (KV_SOURCE_HEADER, state.endpoint.host_port))
