"""Where in its step an engine is, told by pieces of answers; and against the emulated engine itself."""

import math

import pytest

from heliotrope.predict.step_phase import ONE_STEP_SECONDS, UNKNOWN_PHASE, StepPhase, after_piece, begun

NOBODY = math.nan


def piece(phase: StepPhase, at_s: float, *, first: bool = False, oldest_waiting_s: float = NOBODY) -> StepPhase:
    return after_piece(phase, at_s, first=first, oldest_waiting_s=oldest_waiting_s)


def test_an_idle_engine_begins_with_the_prefill_of_what_comes() -> None:
    phase = begun(5.0)

    assert (phase.began_s, phase.prefilling) == (5.0, True)
    assert math.isnan(UNKNOWN_PHASE.began_s)


def test_after_a_prefill_it_decodes_once_although_somebody_waits() -> None:
    phase = piece(begun(0.0), 0.5, first=True, oldest_waiting_s=0.2)

    assert (phase.began_s, phase.prefilling) == (0.5, False)
    assert piece(phase, 0.53, oldest_waiting_s=0.2).prefilling


def test_after_a_decode_it_decodes_on_while_nobody_waits() -> None:
    phase = piece(piece(begun(0.0), 0.5, first=True), 0.53)

    assert (phase.began_s, phase.before_began_s, phase.prefilling) == (0.53, 0.5, False)


def test_prompts_that_the_step_before_had_begun_are_prefilled_on() -> None:
    decoding = piece(begun(0.0), 0.5, first=True)
    prefilling = piece(decoding, 0.53, oldest_waiting_s=0.51)
    phase = piece(prefilling, 0.7, first=True, oldest_waiting_s=0.52)

    assert phase.prefilling
    assert not piece(prefilling, 0.7, first=True, oldest_waiting_s=0.6).prefilling


@pytest.mark.parametrize("order", [(True, False), (False, True)])
def test_pieces_of_one_step_may_come_in_any_order(order: tuple[bool, bool]) -> None:
    phase = piece(begun(0.0), 0.5, first=True)
    for number, first in enumerate(order):
        phase = piece(phase, 0.6 + number * ONE_STEP_SECONDS / 2.0, first=first, oldest_waiting_s=0.55)

    assert (phase.began_s, phase.before_began_s, phase.after_prefill, phase.prefilling) == (0.6, 0.5, True, False)
