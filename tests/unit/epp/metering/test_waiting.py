"""What an engine draws while a request is on its way to it, or prefilled elsewhere, is not that request's."""

import pytest
from tests.unit.epp.metering.played import Played, raised

from heliotrope.engine import profiles

P, D = "ns/p", "ns/d"
ENGINE = profiles.load("llama-3.1-8b-h100")
PROMPT = 20_000
PREFILL_S = ENGINE.prefill_seconds(PROMPT, 1.0, float(PROMPT * PROMPT))
DECODE_S = 1.0
PREFILL_WATTS, DECODE_WATTS = 600.0, 400.0


def draw(played: Played, seconds: float, watts: dict[str, float]) -> None:
    """Time passes in which engines draw so much; those that are not named, what they draw without work."""
    for key, counted in played.counted.items():
        joules = watts.get(key, ENGINE.idle_watts) * seconds
        counted.accelerators = raised(counted.accelerators, round(joules * 1_000.0))
    played.tick(seconds)


def drawn(waits: list[float], prefiller: str) -> list[float]:
    """Joules of requests, sent at once and prefilled one after another, each after a wait on its way."""
    played = Played("p", "d", engine=ENGINE, hold_s=3.0)
    for counted in played.counted.values():
        counted.accelerators = {"gpu": 1_000_000}
    played.tick()
    draw(played, 1.0, {})
    pair = {} if prefiller == D else {"prefill_endpoint": prefiller}
    sent = [played.send(str(n), D, prompt_tokens=PROMPT, **pair) for n in range(len(waits))]  # type: ignore[arg-type]
    for each, wait_s in zip(sent, waits, strict=True):
        for _ in range(5):
            draw(played, wait_s / 5.0, {})
        draw(played, PREFILL_S, {prefiller: PREFILL_WATTS})
        played.chunks(each, 1)
        for _ in range(10):
            draw(played, DECODE_S / 10.0, {D: DECODE_WATTS})
            played.chunks(each, 4)
        played.end(each, tokens=41, prompt_tokens=PROMPT)
    for _ in range(60):
        draw(played, 0.2, {})
    found = [played.energies[each.name] for each in sent]
    return [energy.millijoules / 1_000.0 for energy in found if energy is not None]


@pytest.mark.parametrize("prefiller", [P, D], ids=["pair", "alone"])
@pytest.mark.parametrize("wait_s", [0.01, 0.4, 2.5])
def test_a_wait_on_the_way_is_nobodys_work(wait_s: float, prefiller: str) -> None:
    (joules,) = drawn([wait_s], prefiller)

    assert joules == pytest.approx(PREFILL_WATTS * PREFILL_S + DECODE_WATTS * DECODE_S, rel=0.05)


@pytest.mark.parametrize("prefiller", [P, D], ids=["pair", "alone"])
def test_nor_is_it_of_those_behind(prefiller: str) -> None:
    found = drawn([0.4, 1.0, 0.0001], prefiller)

    assert sum(found) == pytest.approx(3 * (PREFILL_WATTS * PREFILL_S + DECODE_WATTS * DECODE_S), rel=0.05)
