"""A window's requests as columns."""

from collections.abc import Sequence
from math import inf

import numpy as np

from heliotrope.api.v1alpha1 import CarbonPolicy
from heliotrope.api.v1alpha1.objective import Placement as PlacementSpec
from heliotrope.place.window import NO_HOME, BoolMatrix, FloatMatrix, Window
from heliotrope_epp.region.placed import Waiting
from heliotrope_epp.region.prefixes import RegionPrefixes

DEFAULT_PLACEMENT = PlacementSpec()


def window_of(
    waiting: Sequence[Waiting],
    names: Sequence[str],
    up: Sequence[bool],
    prefixes: RegionPrefixes,
    now_s: float,
    now_unix_s: float,
) -> Window:
    """The window of these requests over these regions; a region that is down is allowed for none.

    A request with a deadline has its promise then, where that is later than the policy's: it agreed to wait.
    """
    n, index = len(waiting), {name: i for i, name in enumerate(names)}
    return Window(
        prompt_tokens=np.array([float(each.llm.prompt_tokens) for each in waiting]),
        output_tokens=np.array([each.llm.expected_output_tokens for each in waiting]),
        waited_seconds=np.array([now_s - each.arrived_s - each.held_s for each in waiting]),
        ttft_slo_seconds=np.array([_ttft_slo_seconds(each, now_unix_s) for each in waiting]),
        tpot_slo_seconds=np.array([_tpot_slo_seconds(each) for each in waiting]),
        cached_tokens=_cached_tokens(waiting, names, index, prefixes, now_s),
        allowed=_allowed(waiting, names, up),
        home=np.fromiter((_home(each, index) for each in waiting), dtype=np.int64, count=n),
    )


def placement_spec(policy: CarbonPolicy | None) -> PlacementSpec:
    """Of the policy in force, else the defaults."""
    return DEFAULT_PLACEMENT if policy is None else policy.spec.placement


def _ttft_slo_seconds(each: Waiting, now_unix_s: float) -> float:
    own, policy = each.llm.ttft_slo_seconds, each.policy
    slo = inf if policy is None or policy.ttft_slo_seconds is None else policy.ttft_slo_seconds
    slo = slo if own is None or not _may_promise(each) else own
    return slo if each.deadline_unix_s is None else max(slo, each.deadline_unix_s - now_unix_s)


def _tpot_slo_seconds(each: Waiting) -> float:
    own, policy = each.llm.tpot_slo_seconds, each.policy
    slo = inf if policy is None or policy.tpot_slo_seconds is None else policy.tpot_slo_seconds
    return slo if own is None or not _may_promise(each) else own


def _may_promise(each: Waiting) -> bool:
    """A promise of its own that the policy refuses does not count."""
    policy = each.policy
    return policy is None or all(override.value != "slo" for override, _ in policy.provenance.refused)


def _cached_tokens(
    waiting: Sequence[Waiting], names: Sequence[str], index: dict[str, int], prefixes: RegionPrefixes, now_s: float
) -> FloatMatrix:
    """Of what was sent there; at a session's home its last answer, too. At least one token is computed."""
    cached = np.zeros((len(waiting), len(names)))
    for i, each in enumerate(waiting):
        if not each.chain:
            continue
        prompt = each.llm.prompt_tokens
        cached[i] = prefixes.cached_shares(each.chain, each.prompt_bytes, names, now_s)
        cached[i] *= prompt
        home, turn = _home(each, index), each.llm.session
        if home != NO_HOME and cached[i, home] > 0.0 and turn is not None and turn.view is not None:
            cached[i, home] = max(cached[i, home], turn.view.history_tokens)
        np.minimum(cached[i], prompt - 1.0, out=cached[i])
    return cached


def _allowed(waiting: Sequence[Waiting], names: Sequence[str], up: Sequence[bool]) -> BoolMatrix:
    there = np.asarray(up, dtype=bool)
    allowed = np.tile(there, (len(waiting), 1))
    masks: dict[frozenset[str], BoolMatrix] = {}
    for i, each in enumerate(waiting):
        regions = None if each.policy is None else each.policy.allowed_regions
        if regions is not None:
            if regions not in masks:
                masks[regions] = there & np.array([name in regions for name in names])
            allowed[i] = masks[regions]
    return allowed


def _home(each: Waiting, index: dict[str, int]) -> int:
    turn = each.llm.session
    home = None if turn is None or turn.view is None else turn.view.previous_endpoint
    return NO_HOME if home is None else index.get(home, NO_HOME)
