"""What the configured plug-ins did beside what a policy would have done, where it was not followed."""

from collections.abc import Sequence
from dataclasses import replace

from heliotrope.cache.crowd import Crowd
from heliotrope.decide.candidates import Candidates
from heliotrope.decide.compared import Comparison, compared, estimated_together
from heliotrope.decide.decision import Decision
from heliotrope.decide.encode import Encoding
from heliotrope.decide.phases import with_pair
from heliotrope.decide.standing import Standing
from heliotrope_epp.plugins.interface import LlmRequest, Option, Pick
from heliotrope_epp.plugins.pickers.carbon import CarbonPicker, Helpers, Prefillers
from heliotrope_epp.plugins.pickers.columns import request_profile


def compare(picker: CarbonPicker, request: LlmRequest, pick: Pick, helpers: Helpers) -> Comparison | None:
    """What the configured plug-ins picked beside what the policy would have done; None without a policy.

    Args:
        picker: that made the decision.
        request: what is to be served.
        pick: whole, with the decision that was not followed.
        helpers: what that decision could choose from for phases elsewhere.
    """
    if pick.decision is None:
        return None
    decision = pick.decision.by_policy()
    if not pick.options:
        return compared(decision, None)
    decode, prefill = pick.options[0], pick.prefill
    candidates = decision.candidates
    if prefill is None:
        # Of a held-out request too: both of its decisions have the same plans but for pairs, which come last.
        row = pick.decision.row_of(decode.key)
    else:
        row = decision.pair_row(decode.key, prefill.key)
        if row is None and helpers.prefill is not None:
            candidates = _with_ran(picker, request, decision, decode, prefill, helpers.prefill)
            row = None if candidates is decision.candidates else len(candidates) - 1
    if row is None:
        return compared(decision, None)
    if candidates.encoding is not None:
        names = tuple(option.key for option in pick.encoders)
        if candidates is not decision.candidates or decision.planned(row).encode_endpoints != names:
            candidates = replace(candidates, encoding=_settled(candidates.encoding, row, names))
    if candidates is decision.candidates:
        return compared(decision, row)
    return estimated_together(decision, candidates, row, picker.models())


def _with_ran(
    picker: CarbonPicker,
    request: LlmRequest,
    decision: Decision,
    decode: Option,
    prefill: Option,
    prefillers: Prefillers,
) -> Candidates:
    """Its candidates with the pair that ran; as they are where its prefiller is none of them."""
    candidates, policy, others = decision.candidates, decision.policy, prefillers.options
    keys = [state.endpoint.key for state in others.states]
    if prefill.key not in keys or decode.key not in candidates.endpoints:
        return candidates
    alone = picker.alone(request.prompt_tokens, others, candidates.region_views, policy)
    here, there = candidates.endpoints.index(decode.key), keys.index(prefill.key)
    readers, sources = _crowd_at(decision.standing, here), _crowd_at(prefillers.standing, there)
    return with_pair(
        candidates,
        alone,
        picker.pair_pools.planes_between(decode.state, prefill.state, readers, sources),
        request_profile(request),
        here,
        there,
        certainty=policy.certainty,
        prefill_standing=prefillers.standing,
    )


def _crowd_at(standing: Standing, row: int) -> Crowd | None:
    """The transfers on their way at one endpoint."""
    crowd = standing.crowd
    return None if crowd is None else Crowd(crowd.into[:, [row]], crowd.out[:, [row]])


def _settled(encoding: Encoding, row: int, names: Sequence[str]) -> Encoding:
    """The same with the plan of a row encoded at these endpoints, which are among the encoders."""
    pool = () if encoding.encoders is None else encoding.encoders.endpoints
    return replace(encoding, settled={row: tuple(pool.index(name) for name in names)})
