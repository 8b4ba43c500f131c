"""Shares that an LP fixed for the hour, whatever load comes of them: Green-LLM as in paper carbon-slo-tension."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from heliotrope.errors import SolverError
from heliotrope.place.assignment import NOWHERE, Assignment, Outcome, Reason
from heliotrope.place.estimate import carbon_counts, cost_of_a_joule, expected_output_tokens, possible_pairs
from heliotrope.place.hourly_plan import plan
from heliotrope.place.in_turn import CLEANEST, NO_TURN_YET, assign_in_turn, place_rest
from heliotrope.place.policy import PlacementPolicy
from heliotrope.place.regions import Regions
from heliotrope.place.window import BoolColumn, BoolMatrix, FloatMatrix, IntColumn, Window
from heliotrope.units import SECONDS_PER_HOUR

SETTLED_AFTER_S = 60.0
"""The first plan is made on one window's demand; after this time there is another, on what came since."""
MOST_CLASSES = 32
"""Sets of allowed regions that are planned apart. Requests with further ones are counted and sent as the last class, as
far as they may."""


@dataclass(frozen=True, slots=True)
class HourlyMemory:
    """A plan, what was sent by it, and the demand since; for K classes of requests with the same allowed regions."""

    names: tuple[str, ...]
    masks: BoolMatrix
    """Shape (K, d)."""
    shares: FloatMatrix
    """Of each class's tokens, shape (K, d)."""
    sent_tokens: FloatMatrix
    """Since the plan was made, shape (K, d)."""
    seen: FloatMatrix
    """Requests, prompt tokens and output tokens of each class since then, shape (3, K)."""
    planned_at_s: float
    next_plan_s: float
    cursor: int = NO_TURN_YET


def hourly_lp(window: Window, regions: Regions, policy: PlacementPolicy, now: float, memory: Any = None) -> Assignment:
    """Follow the plan in the memory. There is a new one every full hour, for other regions, and after a first minute.

    The demand that is expected is what this scheduler saw since the last plan; at first, that of the window.
    """
    if not len(window):
        return replace(assign_in_turn(window, regions, policy, CLEANEST, NO_TURN_YET), memory=memory)
    before: HourlyMemory | None = memory if memory is not None and memory.names == regions.names else None
    masks = window.allowed[:0] if before is None else before.masks
    masks, classes = _classify(window.allowed, masks)
    arriving = _demand(window, policy, classes, len(masks))
    planned = before is None or now >= before.next_plan_s
    try:
        if before is None:
            seconds = max(float(window.waited_seconds.max()), policy.window_seconds)
            current = _planned(arriving / seconds, masks, window, regions, policy, now, now + SETTLED_AFTER_S)
        elif planned:
            seen = (_wider(before.seen.T, masks).T + arriving) / max(now - before.planned_at_s, policy.window_seconds)
            current = _planned(seen, masks, window, regions, policy, now, np.inf)
        else:
            current = replace(
                before,
                masks=masks,
                shares=_wider(before.shares, masks, before.shares.mean(axis=0) * masks),
                sent_tokens=_wider(before.sent_tokens, masks),
                seen=_wider(before.seen.T, masks).T + arriving,
            )
    except SolverError:
        cursor = NO_TURN_YET if before is None else before.cursor
        instead = assign_in_turn(window, regions, policy, CLEANEST, cursor)
        return replace(instead, outcome=Outcome.FELL_BACK, memory=before)
    if before is not None:
        current = replace(current, cursor=before.cursor)
    return _followed(window, regions, policy, classes, current, work=int(planned))


def _classify(allowed: BoolMatrix, masks: BoolMatrix) -> tuple[BoolMatrix, IntColumn]:
    """The masks with those that the window adds, and each request's class."""
    if len(masks) and (allowed == masks[0]).all():
        return masks, np.zeros(len(allowed), dtype=np.int64)
    rows, of = np.unique(allowed, axis=0, return_inverse=True)
    known = {mask.tobytes(): k for k, mask in enumerate(masks)}
    found = np.empty(len(rows), dtype=np.int64)
    added: list[BoolColumn] = []
    for i, row in enumerate(rows):
        k = known.get(row.tobytes(), len(masks) + len(added))
        if k == len(masks) + len(added) and k < MOST_CLASSES:
            added.append(row)
        found[i] = min(k, MOST_CLASSES - 1)
    return np.vstack([masks, *added]), found[of.ravel()]


def _demand(window: Window, policy: PlacementPolicy, classes: IntColumn, count: int) -> FloatMatrix:
    """Requests, prompt tokens and output tokens by class, shape (3, K)."""
    output_tokens = expected_output_tokens(window, policy)
    columns = (np.ones(len(window)), window.prompt_tokens, output_tokens)
    return np.array([np.bincount(classes, weights=column, minlength=count) for column in columns])


def _wider(matrix: FloatMatrix, masks: BoolMatrix, values: FloatMatrix | None = None) -> FloatMatrix:
    """The matrix with a row for every class, those of later ones from `values`, else zero."""
    if len(matrix) == len(masks):
        return matrix
    wide = np.zeros((len(masks), matrix.shape[1])) if values is None else values.copy()
    wide[: len(matrix)] = matrix
    return wide


def _planned(
    demand: FloatMatrix,
    masks: BoolMatrix,
    window: Window,
    regions: Regions,
    policy: PlacementPolicy,
    now: float,
    latest: float,
) -> HourlyMemory:
    shares = plan(demand, masks, regions, policy, cost_of_a_joule(window, regions))
    return HourlyMemory(
        names=regions.names,
        masks=masks,
        shares=shares,
        sent_tokens=np.zeros(shares.shape),
        seen=np.zeros(demand.shape),
        planned_at_s=now,
        next_plan_s=min((now // SECONDS_PER_HOUR + 1.0) * SECONDS_PER_HOUR, latest),
    )


def _followed(
    window: Window, regions: Regions, policy: PlacementPolicy, classes: IntColumn, memory: HourlyMemory, work: int
) -> Assignment:
    from heliotrope.place.hourly_kernel import follow

    tokens = window.prompt_tokens + expected_output_tokens(window, policy)
    sent = memory.sent_tokens.copy()
    places = np.full(len(window), NOWHERE)
    follow(memory.shares, sent, classes, tokens, possible_pairs(window, regions, policy), places)
    reasons = np.full(len(window), int(Reason.OBJECTIVE))
    places, reasons, cursor = place_rest(window, regions, policy, memory.cursor, places, reasons)
    return Assignment(
        regions=places,
        reasons=reasons,
        outcome=Outcome.HEURISTIC,
        objective=np.nan,
        gap=np.nan,
        work=work,
        carbon_counts=carbon_counts(window, regions),
        memory=replace(memory, sent_tokens=sent, cursor=cursor),
    )
