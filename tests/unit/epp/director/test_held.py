"""Requests while no engine is awake: held, then decided on as if they had just come; or refused with a reason."""

import json
from dataclasses import replace

import pytest
from tests.unit.epp.director.test_director import Bench, Gateway, chat, report

from heliotrope.decide.recorded import read
from heliotrope_cli.explain_text import sentences
from heliotrope_epp.datalayer.endpoint import RESTING_LABEL, EngineMetrics
from heliotrope_epp.datalayer.world import World
from heliotrope_epp.demand.holding import End, HoldSettings
from heliotrope_epp.transport.interface import DROP_REASON_HEADER


def put_to_sleep(bench: Bench, *keys: str) -> None:
    for key in keys:
        state = bench.store.get(key)
        assert state is not None
        state.metrics = EngineMetrics(bench.now_s, running=0.0, waiting=0.0, kv_usage=0.0, asleep=True)


def dropped(answer: Gateway) -> tuple[int, str, str]:
    assert answer.rejected is not None
    status, _, headers = answer.rejected
    return status, headers[DROP_REASON_HEADER], headers["retry-after"]


def empty(**settings: object) -> Bench:
    bench = Bench(**settings)  # type: ignore[arg-type]
    bench.store.apply(World())
    return bench


def test_a_request_of_an_empty_pool_waits_for_the_first_endpoint() -> None:
    bench = empty()
    answer = bench.send(Gateway(chat()))
    assert (answer.routed_to, answer.rejected, len(bench.director.held)) == (None, None, 1)
    assert bench.director.held.look() == 0
    bench.now_s += 30.0
    bench.apply()
    assert bench.director.held.look() == 1
    assert answer.routed_to is not None
    assert bench.log.newest(1)[0]["held_seconds"] == 30.0
    bench.director.done(answer.ctx, report())
    assert bench.director.inflight == 0


def test_a_pool_asleep_wakes_without_its_sleeping_engines_getting_anything() -> None:
    bench = Bench()
    put_to_sleep(bench, "ns/a", "ns/b")
    answers = [bench.send(Gateway(chat())) for _ in range(3)]
    bench.director.held.look()
    assert [a.routed_to for a in answers] == [None] * 3
    awake = bench.store.get("ns/b")
    assert awake is not None
    awake.metrics = EngineMetrics(bench.now_s, running=0.0, waiting=0.0, kv_usage=0.0, asleep=False)
    bench.director.held.look()
    assert [a.routed_to for a in answers] == ["10.0.0.2:8000"] * 3
    assert bench.log.newest(1)[0]["asleep"] == ["ns/a"]


def test_not_known_to_be_awake_is_not_asleep() -> None:
    bench = Bench()
    for state in bench.store.states():
        state.metrics = None
    assert bench.send(Gateway(chat())).routed_to is not None


def test_the_ttl_ends_in_a_503_that_says_when_to_come_again() -> None:
    bench = empty(hold=HoldSettings(ttl_s=5.0))
    answer = bench.send(Gateway(chat()))
    bench.now_s += 5.0
    bench.director.held.look()
    assert dropped(answer) == (503, "rejected-ttl-expired", "10")
    assert bench.count("heliotrope_rejected_requests_total", code="503", reason="rejected-ttl-expired") == 1


@pytest.mark.parametrize("settings", [HoldSettings(max_requests=1), HoldSettings(max_bytes=2_000)])
def test_overflow_ends_in_a_503(settings: HoldSettings) -> None:
    bench = empty(hold=settings)
    first, second = bench.send(Gateway(chat())), bench.send(Gateway(chat()))
    assert first.rejected is None
    assert dropped(second) == (503, "rejected-hold-full", "10")


def test_a_client_that_leaves_frees_its_place() -> None:
    bench = empty(hold=HoldSettings(max_requests=1))
    answer = bench.send(Gateway(chat()))
    answer.cancelled = True
    bench.director.cancelled(answer)
    assert (len(bench.director.held), bench.director.held.held_bytes) == (0, 0)
    assert bench.send(Gateway(chat())).rejected is None
    bench.apply()
    assert bench.director.held.look() == 1
    assert answer.routed_to is None


def test_draining_sends_those_who_wait_to_another_picker() -> None:
    bench = empty()
    answer = bench.send(Gateway(chat()))
    bench.director.held.drain()
    assert dropped(answer) == (503, "rejected-draining", "1")
    assert dropped(bench.send(Gateway(chat())))[1] == "rejected-draining"


def test_a_bad_request_does_not_wait_to_be_told() -> None:
    answer = empty().send(Gateway(b"{"))
    assert answer.rejected is not None
    assert answer.rejected[0] == 400


def test_what_no_engine_that_may_come_could_serve_is_refused_at_once() -> None:
    for bench, request in (
        (empty(), Gateway(method="GET", path="/v1/models")),
        (empty(), Gateway(chat(), subset=("10.9.9.9",))),
        (empty(hold=HoldSettings(max_requests=0)), Gateway(chat())),
    ):
        answer = bench.send(request)
        assert answer.rejected is not None
        assert answer.rejected[2][DROP_REASON_HEADER] == "rejected-no-endpoints"


def test_beyond_the_limit_of_requests_in_flight_the_rest_goes_on_waiting() -> None:
    bench = empty(max_inflight=1)
    answers = [bench.send(Gateway(chat())) for _ in range(2)]
    bench.apply()
    bench.director.held.look()
    assert [a.routed_to is not None for a in answers] == [True, False]
    bench.director.done(answers[0].ctx, report())
    bench.director.held.look()
    assert answers[1].routed_to is not None
    assert bench.director.held.ends[End.RELEASED] == 2


def test_an_engine_that_is_about_to_rest_is_drained_while_another_is_awake() -> None:
    bench = Bench()
    first, second = bench.endpoints
    bench.endpoints = (replace(first, labels={RESTING_LABEL: "EngineSleep"}), second)
    bench.apply()
    assert {bench.send(Gateway(chat())).routed_to for _ in range(20)} == {"10.0.0.2:8000"}
    put_to_sleep(bench, "ns/b")
    assert bench.send(Gateway(chat())).routed_to == "10.0.0.1:8000", "rather than let a request wait"


def test_the_record_says_in_words_that_it_waited_and_who_slept() -> None:
    bench = Bench()
    put_to_sleep(bench, "ns/a", "ns/b")
    bench.send(Gateway(chat()))
    bench.now_s += 12.34
    bench.apply()
    put_to_sleep(bench, "ns/a")
    bench.director.held.look()
    record, _ = read(json.dumps(bench.log.get("r-1")))
    text = " ".join(sentences(record))
    assert "It waited 12.3 s for an engine to wake. Asleep, and so no candidates: ns/a." in text
