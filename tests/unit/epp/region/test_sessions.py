"""Conversations across regions: what is believed cached, pins, and the gate."""

import json
from typing import Any

import pytest
from tests.support.gates import trained_gate
from tests.unit.epp.region.bench import Bench, chat, policy, profile, turned
from tests.unit.epp.region.builders import Client

from heliotrope.cache.gate import OFF, Gate

CLEAN_A = {"a": 20.0, "b": 400.0}
CLEAN_B = {"a": 400.0, "b": 20.0}


def turn(bench: Bench, number: int) -> Client:
    """The next turn of one conversation; its history grows."""
    client = Client(chat("a long history " * 400 * number), {"x-session-id": "s-1", "x-request-id": f"t-{number}"})
    bench.send(client)
    turned(client, bench)
    bench.later(1.0, "a", "b")
    return client


def after_the_grids_swapped(mode: str, gate: Gate = OFF, **spec: Any) -> tuple[Bench, Client]:
    bench = Bench(CLEAN_A, carbon_policy=policy(sessionGate={"mode": mode}, **spec), gate=gate)
    assert turn(bench, 1).sent["x-heliotrope-region"] == "a"
    assert turn(bench, 2).sent["x-heliotrope-region"] == "a"
    bench.intensities(CLEAN_B)
    return bench, turn(bench, 3)


async def test_a_pinned_session_stays_where_it_keeps_its_promise() -> None:
    bench, client = after_the_grids_swapped("Pin")
    assert client.sent["x-heliotrope-region"] == "a"
    decision = bench.log.get("t-3")
    assert decision is not None
    assert decision["session"] == "pinned by the policy"


async def test_a_policy_that_advises_pins_nobody() -> None:
    bench = Bench(CLEAN_A, carbon_policy=policy(sessionGate={"mode": "Pin"}))
    assert turn(bench, 1).sent["x-heliotrope-region"] == "a"
    bench.apply(policy(sessionGate={"mode": "Pin"}, spec={"enforcement": "Advise"}), [profile("a"), profile("b")])
    bench.intensities(CLEAN_A)
    bench.now_s += 0.1
    bench.state("a", engines=4, running=60.0)
    client = Client(chat("next turn"), {"x-session-id": "s-1"})
    bench.send(client)
    assert client.sent["x-heliotrope-region"] == "b"


async def test_a_pinned_session_leaves_a_region_that_is_away_and_may_come_back() -> None:
    bench, _ = after_the_grids_swapped("Pin")
    bench.later(60.0, "b")
    (client,) = bench.send(Client(chat("x"), {"x-session-id": "s-1"}))
    assert client.sent["x-heliotrope-region"] == "b"


async def test_without_a_gate_a_much_cleaner_region_takes_the_session() -> None:
    bench, client = after_the_grids_swapped("Learned")
    assert client.sent["x-heliotrope-region"] == "b"
    assert (bench.log.get("t-3") or {})["session"] == "no validated gate"


@pytest.mark.parametrize(("keeps", "region"), [(True, "a"), (False, "b")])
async def test_the_gate_keeps_a_session_or_lets_it_go(keeps: bool, region: str) -> None:
    bench, client = after_the_grids_swapped("Learned", trained_gate(0.5 if keeps else -0.5))
    assert client.sent["x-heliotrope-region"] == region
    said = (bench.log.get("t-3") or {})["session"]
    assert said == ("the gate expects more from staying" if keeps else "the gate expects no more from staying")


def watched(bench: Bench) -> list[Any]:
    """The windows that the scheduler gets from now on."""
    seen: list[Any] = []
    place = bench.placer._schedulers["Greedy"]

    def spy(window: Any, *rest: Any) -> Any:
        seen.append(window)
        return place(window, *rest)

    bench.placer._schedulers = {"Greedy": spy}
    return seen


async def test_history_counts_as_cached_where_it_was_sent_and_for_half_an_hour() -> None:
    bench = Bench(CLEAN_A, carbon_policy=policy())
    seen = watched(bench)
    turn(bench, 1)
    turn(bench, 2)
    bench.later(2_000.0, "a", "b")
    turn(bench, 3)
    assert seen[0].cached_tokens.tolist() == [[0.0, 0.0]]
    assert seen[1].cached_tokens[0, 0] > 1_000.0
    assert seen[1].cached_tokens[0, 1] == 0.0
    assert seen[1].home.tolist() == [0]
    assert seen[2].cached_tokens.tolist() == [[0.0, 0.0]]


async def test_what_conversations_have_in_common_counts_for_all_of_them() -> None:
    bench = Bench(CLEAN_A, carbon_policy=policy())
    seen = watched(bench)
    system = "You are a helpful grid operator. " * 400
    bench.send(Client(chat(system + "first")), Client(chat("nothing in common " * 700)))
    bench.send(Client(chat(system + "second")), Client(chat("elsewhere " * 1000)))
    cached = seen[1].cached_tokens
    assert cached[0, 0] > 0.8 * seen[1].prompt_tokens[0]
    assert cached[0, 0] < seen[1].prompt_tokens[0]
    assert cached[1].tolist() == [0.0, 0.0]


async def test_a_region_that_died_has_an_empty_cache_when_it_is_back() -> None:
    bench = Bench(CLEAN_A, carbon_policy=policy())
    seen = watched(bench)
    turn(bench, 1)
    bench.provisioner.feeds["a"].fail("refused", refused=True)
    bench.places(1)
    bench.later(1.0, "a", "b")
    turn(bench, 2)
    assert seen[-1].cached_tokens.tolist() == [[0.0, 0.0]]


async def test_names_of_sessions_are_in_no_document() -> None:
    bench, _ = after_the_grids_swapped("Pin")
    assert "s-1" not in json.dumps([bench.log.windows(), bench.log.newest(10)])
