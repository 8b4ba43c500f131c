"""Where in its step an engine is, as the pieces of answers tell who sent it requests.

A piece arrives when a step has ended, so the next one begins then. Engines prefill what waits before they decode on,
and decode once before they prefill again (paper carbon-slo-tension, §III-C). Hence a step that begins after a decode is
a prefill if a prompt waits, and one that begins after a prefill is a decode, unless a prompt is left that the step
before had begun already. An engine that had nothing to do begins with the first request that comes.
"""

from dataclasses import dataclass

NAN = float("nan")
ONE_STEP_SECONDS = 1e-3
"""Pieces within this time of each other are of one step: the shortest steps of engines take several times as long."""


@dataclass(frozen=True, slots=True)
class StepPhase:
    """The running step. Times are monotonic seconds."""

    began_s: float = NAN
    """NaN: nobody knows."""
    before_began_s: float = NAN
    """Of the step before it."""
    after_prefill: bool = False
    """The step before it gave a first token."""
    prefilling: bool = False
    """It computes prompts."""


UNKNOWN_PHASE = StepPhase()


def begun(at_s: float) -> StepPhase:
    """The phase when a request comes to an engine that has none of ours: its prefill begins."""
    return StepPhase(began_s=at_s, prefilling=True)


def after_piece(phase: StepPhase, at_s: float, *, first: bool, oldest_waiting_s: float) -> StepPhase:
    """The phase after a piece.

    Args:
        phase: before it.
        at_s: when it came.
        first: it is the first of its answer.
        oldest_waiting_s: when the first of those was sent whose first piece is still to come; NaN: none is.
    """
    if abs(at_s - phase.began_s) <= ONE_STEP_SECONDS:
        began_s, before_s, after_prefill = phase.began_s, phase.before_began_s, phase.after_prefill or first
    else:
        began_s, before_s, after_prefill = at_s, phase.began_s, first
    # A comparison with NaN is false: nobody waits, or nobody knows when the step before began.
    prefilling = oldest_waiting_s <= (before_s if after_prefill else began_s)
    return StepPhase(began_s, before_s, after_prefill, prefilling)
