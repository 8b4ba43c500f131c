"""Conversations across regions: whether the next turn stays where the last one was (context-is-not-free, algorithm 1).

The scheduler has charged every region for the history that it does not cache, so its choice is the proposal. Here `Pin`
narrows what it may choose, and the learned gate may take a proposal back. Only what keeps the promise counts.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import nan

import numpy as np

from heliotrope.cache.gate import Gate
from heliotrope.cache.gate_features import Placement, Turn, features_of
from heliotrope.cache.session_rules import SessionMode
from heliotrope.cache.sessions import SessionView
from heliotrope.decide.verdict import Because
from heliotrope.place.assignment import NOWHERE
from heliotrope.place.estimate import Estimates
from heliotrope.place.regions import Regions
from heliotrope.place.window import NO_HOME, IntColumn, Window
from heliotrope_epp.region.placed import Waiting


def pinned(window: Window, waiting: Sequence[Waiting], estimates: Estimates) -> Window:
    """The window in which pinned sessions may go nowhere but home, where home keeps their promise."""
    rows = [
        i
        for i, each in enumerate(waiting)
        if window.home[i] != NO_HOME and _mode(each) is SessionMode.PIN and estimates.feasible[i, window.home[i]]
    ]
    if not rows:
        return window
    allowed = window.allowed.copy()
    allowed[rows] = False
    allowed[rows, window.home[rows]] = True
    return replace(window, allowed=allowed)


def homeless(waiting: Sequence[Waiting]) -> list[Because | None]:
    """Why sessions are where they are in a window in which none has a home."""
    return [_without_home(each) for each in waiting]


def gated(
    window: Window,
    waiting: Sequence[Waiting],
    regions: Regions,
    estimates: Estimates,
    proposal: IntColumn,
    gate: Gate,
) -> tuple[IntColumn, list[Because | None]]:
    """Where each request goes once the gate was asked, and why its session stays or moves; None: it has none."""
    places = proposal.copy()
    why: list[Because | None] = []
    for i, each in enumerate(waiting):
        turn = each.llm.session
        if turn is None or turn.view is None or turn.view.turns == 0:
            why.append(_without_home(each))
            continue
        because = _judged(i, each, turn.view, window, regions, estimates, int(proposal[i]), gate)
        if because is Because.GATE:
            places[i] = window.home[i]
        why.append(because)
    return places, why


def _judged(
    i: int,
    each: Waiting,
    view: SessionView,
    window: Window,
    regions: Regions,
    estimates: Estimates,
    proposed: int,
    gate: Gate,
) -> Because:
    home = int(window.home[i])
    if home == NO_HOME or proposed == NOWHERE or not estimates.possible[i, home]:
        return Because.GONE
    mode = _mode(each)
    if proposed == home:
        return Because.PIN if mode is SessionMode.PIN else Because.CHOSEN
    if not estimates.feasible[i, home]:
        return Because.INFEASIBLE
    if not window.cached_tokens[i, home] > 0.0:
        return Because.NO_CACHE
    if mode is SessionMode.OFF:
        return Because.MODE_OFF
    if not gate.on:
        return Because.GATE_OFF
    if not estimates.carbon_counts:
        return Because.GATE_UNKNOWN
    value = gate.advantage(
        features_of(
            _placement(i, proposed, each, window, regions, estimates),
            _placement(i, home, each, window, regions, estimates),
            _turn(each, view),
        )
    )
    if value is None:
        return Because.GATE_UNKNOWN
    return Because.GATE if value > gate.threshold else Because.WORTH_IT


def _turn(each: Waiting, view: SessionView) -> Turn:
    history = float(min(view.history_tokens, each.llm.prompt_tokens))
    return Turn(
        number=view.turns + 1,
        new_tokens=each.llm.prompt_tokens - history,
        history_tokens=history,
        expected_output_tokens=each.llm.expected_output_tokens,
        seconds_since_last_turn=view.idle_seconds,
        switches=float(view.switches),
        turns_at_previous=float(view.turns_at_previous),
    )


def _placement(i: int, region: int, each: Waiting, window: Window, regions: Regions, estimates: Estimates) -> Placement:
    capacity, taken = regions.batch_capacity[region], regions.running[region] + regions.waiting[region]
    free = float(np.clip(1.0 - taken / capacity, 0.0, 1.0)) if capacity > 0.0 else nan
    return Placement(
        grams_co2e=float(estimates.cost[i, region]),
        cached_tokens=float(window.cached_tokens[i, region]),
        intensity_g_per_kwh=float(regions.intensity_g_per_kwh[region]),
        free_share=free,
        model=each.llm.model,
        region=regions.names[region],
    )


def _without_home(each: Waiting) -> Because | None:
    turn = each.llm.session
    if turn is None:
        return None
    return Because.FIRST if turn.view is None or turn.view.turns == 0 else Because.GONE


def _mode(each: Waiting) -> SessionMode:
    return SessionMode.OFF if each.policy is None else each.policy.sessions.mode
