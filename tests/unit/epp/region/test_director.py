"""The region tier's director with every real part but sockets and the solver's process."""

import json
from typing import Any

import pytest
from tests.unit.epp.region.bench import PLENTY, Bench, chat, policy, profile, report
from tests.unit.epp.region.builders import Client

from heliotrope.place.assignment import Assignment
from heliotrope_epp.transport.interface import Cause

BOTH = {"clean": 20.0, "dirty": 400.0}
TIGHT = {"slo": {"ttft": "150ms", "tpot": "100ms"}}


def refusal(client: Client) -> tuple[int, str]:
    assert client.rejected is not None
    status, body, headers = client.rejected
    assert headers["content-type"] == "application/json"
    return status, json.loads(body)["error"]["message"]


async def test_the_clean_region_is_named_to_the_gateway_and_to_the_client() -> None:
    bench = Bench(BOTH, carbon_policy=policy())
    client = Client(chat(), {"x-heliotrope-regions": "clean", "x-heliotrope-deadline": "1h"})
    bench.send(client)
    assert client.endpoint is None
    assert client.sent == {"x-heliotrope-region": "clean"}
    assert client.told["x-heliotrope-region"] == "clean"
    assert set(client.removed) == {"x-heliotrope-regions", "x-heliotrope-deadline"}
    assert "regions: not allowed" in client.told["x-heliotrope-refused"]
    assert "deadline: not allowed" in client.told["x-heliotrope-refused"]
    assert bench.metric("heliotrope_region_dispatches_total", region="clean", reason="objective") == 1


async def test_a_window_closes_by_number_and_its_requests_see_each_other() -> None:
    bench = Bench(BOTH, carbon_policy=policy(windowRequests=3))
    clients = bench.clients(4)
    for client in clients:
        bench.director.decide(client)
    assert [client.answered for client in clients] == [True, True, True, False]
    assert len(bench.collector) == 1
    bench.collector.close()
    assert clients[3].answered


async def test_a_window_closes_by_its_time() -> None:
    import asyncio

    bench = Bench(BOTH, carbon_policy=policy(window="5ms"))
    (client,) = bench.clients(1)
    bench.director.decide(client)
    assert not client.answered
    async with asyncio.timeout(10):
        while not client.answered:
            await asyncio.sleep(0.005)


async def test_without_policy_or_under_advise_carbon_moves_nothing() -> None:
    bench = Bench(BOTH)
    assert sorted(set(bench.places(10))) == ["clean", "dirty"]
    bench = Bench(BOTH, carbon_policy=policy(spec={"enforcement": "Advise"}))
    assert sorted(set(bench.places(10))) == ["clean", "dirty"]
    assert bench.metric("heliotrope_region_advised_total", region="clean") == 10
    regions = {each["region"]: each for each in bench.log.windows()[0]["regions"]}
    assert (regions["clean"]["advised"], regions["dirty"]["advised"]) == (10, 0)


async def test_residency_is_never_relaxed() -> None:
    bench = Bench(BOTH, carbon_policy=policy(allowedRegions=["dirty"]))
    assert bench.places(3) == ["dirty"] * 3
    bench.later(60.0, "clean")
    (client,) = bench.send(*bench.clients(1))
    assert refusal(client) == (503, "no allowed region is up")


async def test_a_region_that_goes_loses_its_requests_and_gets_them_back_when_it_comes() -> None:
    bench = Bench(BOTH, carbon_policy=policy())
    assert bench.places(5) == ["clean"] * 5
    share = bench.beliefs.shares()["clean"]
    bench.later(2.0, "dirty")
    assert bench.places(5) == ["clean"] * 5  # two polls missed are not three
    bench.later(2.0, "dirty")
    assert bench.places(5) == ["dirty"] * 5
    assert bench.metric("heliotrope_region_up", region="clean") == 0
    assert bench.beliefs.shares()["clean"] > share
    bench.later(0.5, "clean", "dirty")
    assert bench.places(5) == ["clean"] * 5


async def test_a_closed_port_takes_a_region_out_at_once() -> None:
    bench = Bench(BOTH, carbon_policy=policy())
    bench.provisioner.feeds["clean"].fail("refused", refused=True)
    assert bench.places(2) == ["dirty"] * 2


async def test_when_no_region_tells_anything_all_take_turns() -> None:
    bench = Bench(BOTH, carbon_policy=policy())
    bench.later(60.0)
    assert sorted(set(bench.places(4) + bench.places(4))) == ["clean", "dirty"]
    assert bench.log.windows()[0]["blind"] is True


async def test_own_dispatches_count_before_the_next_poll() -> None:
    """Four places hold no twenty requests at once, although the last poll shows them empty."""
    bench = Bench(BOTH, carbon_policy=policy(spec=TIGHT))
    bench.later(1.0, "clean", "dirty", engines=1, running=0.0, batch_capacity=4.0)
    placed = [place for _ in range(5) for place in bench.places(4)]
    assert placed[:4] == ["clean"] * 4
    assert placed[4:].count("dirty") >= 4


async def test_peers_are_expected_to_send_as_we_do() -> None:
    def to_clean(schedulers: int) -> int:
        bench = Bench(BOTH, carbon_policy=policy(spec=TIGHT), extra=f"schedulers: {schedulers}")
        bench.later(1.0, "clean", "dirty", engines=2, running=0.0, batch_capacity=8.0)
        return [place for _ in range(16) for place in bench.places(1)].count("clean")

    assert to_clean(4) < to_clean(1)


async def test_the_largest_share_holds_and_yields_where_others_are_down() -> None:
    bench = Bench(BOTH, carbon_policy=policy(), profiles=[profile("clean", largestSharePercent=50), profile("dirty")])
    bench.intensities(BOTH)
    placed = [place for _ in range(40) for place in bench.places(5)]
    assert 80 <= placed.count("clean") <= 120
    capped = [profile("clean", largestSharePercent=50), profile("dirty", largestSharePercent=50)]
    bench = Bench(BOTH, carbon_policy=policy(), profiles=capped)
    bench.later(60.0, "clean")
    assert bench.places(20) == ["clean"] * 20


async def test_a_gateway_that_fails_its_region_is_left_alone() -> None:
    bench = Bench(BOTH, carbon_policy=policy())
    for client in bench.send(*bench.clients(5)):
        bench.director.done(client.ctx, report(503))
    assert bench.places(2) == ["dirty"] * 2
    assert bench.metric("heliotrope_region_pauses_total", region="clean") == 1
    bench.later(1.5, "clean", "dirty")
    (client,) = bench.send(*bench.clients(1))
    assert client.sent["x-heliotrope-region"] == "clean"
    bench.director.done(client.ctx, report(200))
    assert bench.places(1) == ["clean"]


async def test_requests_that_a_shutdown_cut_say_nothing_of_a_region() -> None:
    bench = Bench(BOTH, carbon_policy=policy())
    for client in bench.send(*bench.clients(8)):
        bench.director.done(client.ctx, report(None, cause=Cause.SHUTDOWN))
    assert bench.places(1) == ["clean"]


@pytest.mark.parametrize("scheduler", ["ILP", "IterativeILP", "Facility"])
async def test_without_a_solver_greedy_decides_and_says_so(scheduler: str) -> None:
    import asyncio

    bench = Bench(BOTH, carbon_policy=policy(scheduler=scheduler))
    running = bench.placer.start()
    clients = bench.send(*bench.clients(3))
    assert not clients[0].answered
    async with asyncio.timeout(10):
        while not clients[0].answered:
            await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert [client.sent["x-heliotrope-region"] for client in clients] == ["clean"] * 3
    labels = {"scheduler": "Greedy", "outcome": "Heuristic", "fallback": "starting"}
    assert bench.metric("heliotrope_region_windows_total", **labels) == 1
    assert bench.log.newest(1)[0]["fallback"] == "starting"


async def test_windows_do_not_pile_up_before_the_solver() -> None:
    bench = Bench(BOTH, carbon_policy=policy(scheduler="Facility"))
    for _ in range(6):
        bench.send(*bench.clients(2))
    assert bench.placer.queued_windows == 4
    labels = {"scheduler": "Greedy", "outcome": "Heuristic", "fallback": "queue"}
    assert bench.metric("heliotrope_region_windows_total", **labels) == 2
    bench.placer.drain()
    assert bench.director.inflight == 12
    assert bench.metric("heliotrope_region_windows_total", **(labels | {"fallback": "draining"})) == 4


async def test_a_large_window_leaves_in_several_turns_of_the_loop_and_nobody_is_lost() -> None:
    import asyncio

    bench = Bench(BOTH, carbon_policy=policy(windowRequests=200))
    clients = bench.clients(200)
    for client in clients:
        bench.director.decide(client)
    sent = sum(client.answered for client in clients)
    assert 0 < sent < 100
    left = clients[-1]
    left.cancelled = True
    bench.director.cancelled(left)
    async with asyncio.timeout(10):
        while not all(client.answered for client in clients[:-1]):
            await asyncio.sleep(0)
    assert left.ctx is None
    assert bench.director.inflight == 199
    for client in clients[:-1]:
        bench.director.done(client.ctx, report())
    assert bench.director.inflight == 0


async def test_a_defect_costs_its_window_a_500() -> None:
    def broken(*_: Any) -> Assignment:
        raise RuntimeError("of the scheduler")

    bench = Bench(BOTH, carbon_policy=policy(), scheduler=broken)
    clients = bench.send(*bench.clients(3))
    assert [refusal(client)[0] for client in clients] == [500] * 3
    assert bench.director.inflight == 0


async def test_a_request_that_cannot_be_sent_is_answered_and_the_others_go_on() -> None:
    class Broken(Client):
        def route(self, *_: Any, **__: Any) -> bool:
            raise ValueError("a header is no text")

    bench = Bench(BOTH, carbon_policy=policy())
    first, broken, last = Client(chat("1")), Broken(chat("2")), Client(chat("3"))
    bench.send(first, broken, last)
    assert refusal(broken)[0] == 500
    assert (first.sent["x-heliotrope-region"], last.sent["x-heliotrope-region"]) == ("clean", "clean")
    assert bench.director.inflight == 2


async def test_clients_that_leave_are_forgotten_at_every_stage() -> None:
    bench = Bench(BOTH, carbon_policy=policy())
    first, second, third = bench.clients(3)
    bench.director.decide(first)
    first.cancelled = True
    bench.director.cancelled(first)
    assert (len(bench.collector), bench.director.inflight) == (0, 0)
    bench.director.decide(second)
    bench.director.decide(third)
    second.cancelled = True
    bench.collector.close()
    assert (second.ctx, third.sent["x-heliotrope-region"]) == (None, "clean")
    assert bench.director.inflight == 1
    bench.director.done(third.ctx, report())
    assert bench.director.inflight == 0


async def test_what_cannot_be_read_or_is_too_much_is_refused_with_a_reason() -> None:
    bench = Bench(BOTH, carbon_policy=policy(), max_inflight=2)
    bad = Client(b"{")
    worse = Client(chat(), {"x-heliotrope-deadline": "soon"})
    bench.send(bad, worse)
    assert refusal(bad) == (400, "body: not valid JSON")
    assert refusal(worse)[1].startswith("x-heliotrope-deadline: must be a time")
    clients = bench.send(*bench.clients(3))
    assert refusal(clients[2])[0] == 429


async def test_paths_without_a_prompt_go_to_the_nearest_region() -> None:
    bench = Bench(BOTH, carbon_policy=policy())
    client = Client(method="GET", path="/v1/models")
    bench.director.decide(client)
    assert client.sent == {"x-heliotrope-region": "clean"}
    bench.director.done(client.ctx, report())
    bench.later(60.0)
    gone = Client(method="GET", path="/v1/models")
    bench.director.decide(gone)
    assert refusal(gone)[0] == 503


async def test_an_unknown_grid_drops_carbon_for_all() -> None:
    bench = Bench(BOTH, carbon_policy=policy())
    bench.intensities({"dirty": 400.0})
    bench.later(1.0, "clean", "dirty")
    bench.places(4)
    assert bench.log.windows()[0]["carbon_counts"] is False


async def test_what_happened_can_be_asked_for_without_a_prompt_in_it() -> None:
    bench = Bench(BOTH, carbon_policy=policy())
    client = Client(chat("secret words"), {"x-request-id": "r-7"})
    bench.send(client)
    decision = bench.log.get("r-7")
    assert decision is not None
    assert (decision["region"], decision["scheduler"], decision["reason"]) == ("clean", "Greedy", "objective")
    document = json.dumps([decision, bench.log.windows(), bench.log.newest(5)], allow_nan=False)
    assert "secret" not in document
    assert PLENTY["engines"] == bench.log.windows()[0]["regions"][0]["engines"]
