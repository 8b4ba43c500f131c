"""Who gets which joules."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from tests.unit.epp.metering.played import Played, Sent, raised

from heliotrope.engine import profiles
from heliotrope.engine.counters import CounterLimits, Refusal
from heliotrope_epp.datalayer.node_energy import Accelerator, NodeReading
from heliotrope_epp.metering.totals import MeteringCollector, WithoutEnergy
from heliotrope_epp.outcomes.energy import RequestEnergy
from heliotrope_epp.transport.interface import Cause

A, B = "ns/a", "ns/b"
ENGINE = profiles.load("llama-3.1-8b-h100")


def world(*names: str, hold_s: float = 0.0, **options: object) -> Played:
    """Endpoints with one accelerator each, whose counters have begun to count."""
    played = Played(*(names or ("a",)), engine=ENGINE, hold_s=hold_s, **options)  # type: ignore[arg-type]
    for counted in played.counted.values():
        counted.accelerators = {"gpu": 1_000_000}
    played.tick()
    go(played, 1.0, 100)
    return played


def go(played: Played, seconds: float, millijoules: int, *keys: str) -> None:
    """Time passes in which counters rise by so much; all of them, or those of some endpoints."""
    for key, counted in played.counted.items():
        if not keys or key in keys:
            counted.accelerators = raised(counted.accelerators, millijoules)
    played.tick(seconds)


def energy(played: Played, name: str) -> RequestEnergy:
    found = played.energies[name]
    assert found is not None
    return found


def booked(played: Played, line: str) -> int:
    """mJ of one line over all intervals."""
    return sum(getattr(interval, f"{line}_millijoules") for interval in played.intervals)


def serve(played: Played, sent: Sent, *, seconds: float, tokens: int, millijoules: int) -> None:
    """Tokens arrive evenly, one page a fifth of the time."""
    for i in range(5):
        played.chunks(sent, tokens * (i + 1) // 5 - tokens * i // 5)
        go(played, seconds / 5.0, millijoules // 5)


def test_a_request_alone_gets_all_that_was_drawn_while_it_ran() -> None:
    played = world()
    sent = played.send("r", A)
    serve(played, sent, seconds=2.0, tokens=20, millijoules=500_000)
    played.end(sent, tokens=20, prompt_tokens=100)
    go(played, 1.0, 80_000)

    r = energy(played, "r")
    assert r.millijoules == 500_000
    assert r.coverage == pytest.approx(1.0)
    assert r.accelerator_seconds == pytest.approx(2.0)
    assert r.host_joules == pytest.approx(2.0 * ENGINE.host_watts)
    assert (r.start_unix_s, r.end_unix_s) == pytest.approx((1_000_001.0, 1_000_003.0))
    assert (booked(played, "requests"), booked(played, "others")) == (500_000, 0)
    assert (booked(played, "idle"), booked(played, "unattributed")) == (80_000, 0)


def test_the_books_are_the_difference_of_two_readings() -> None:
    played = world()
    sent = played.send("r", A)
    serve(played, sent, seconds=2.0, tokens=20, millijoules=500_000)
    played.end(sent, tokens=20, prompt_tokens=100)
    go(played, 1.0, 80_000)

    row = played.meter.row(A)
    assert row is not None
    assert row["millijoules"] == {
        "opened_at": 1_000_100,
        "closed_at": 1_580_100,
        "requests": 500_000,
        "others": 0,
        "idle": 80_000,
        "unattributed": 0,
    }


def test_two_requests_share_by_their_work() -> None:
    played = world()
    short, long = played.send("short", A, prompt_tokens=10), played.send("long", A, prompt_tokens=4_000)
    for _ in range(9):
        played.chunks(short, 5)
        played.chunks(long, 5)
        played.tick(0.1)
    played.chunks(short, 5)
    played.chunks(long, 5)
    go(played, 0.1, 300_000)
    played.end(short, tokens=50, prompt_tokens=10)
    played.end(long, tokens=50, prompt_tokens=4_000)
    go(played, 0.1, 5_000)

    small, large = energy(played, "short").millijoules, energy(played, "long").millijoules
    e = ENGINE.energy
    prefill = 3_990 * e.prefill_joules_per_token + (4_000**2 - 10**2) * e.prefill_joules_per_token_squared
    cached = 49 * 3_990 * e.decode_joules_per_cached_token
    both = (
        2 * e.prefill_base_joules
        + 20 * e.prefill_joules_per_token
        + 49 * (e.decode_base_joules + 2 * e.decode_joules_per_request)
        + 2 * 49 * 34 * e.decode_joules_per_cached_token
    )
    assert small + large == 300_000
    assert (large - small) / 300_000 == pytest.approx((prefill + cached) / (prefill + cached + both), rel=0.08)


def test_time_without_work_is_nobodys_request() -> None:
    played = world()
    go(played, 2.0, 160_000)
    sent = played.send("r", A)
    played.chunks(sent, 2)
    go(played, 1.0, 300_000)
    played.end(sent, tokens=2, prompt_tokens=100)
    go(played, 1.0, 80_000)

    assert energy(played, "r").millijoules == 300_000
    assert [interval.idle_millijoules for interval in played.intervals] == [160_000, 0, 80_000]


def test_part_of_an_interval_is_idle() -> None:
    played = world()
    sent = played.send("r", A)
    played.chunks(sent, 2)
    played.now_s += 1.0
    played.end(sent, tokens=2, prompt_tokens=100)
    go(played, 1.0, 500_000)

    (interval,) = played.intervals
    assert interval.idle_millijoules == round(ENGINE.idle_watts * 1_000)
    assert energy(played, "r").millijoules == 500_000 - interval.idle_millijoules
    assert energy(played, "r").idle_joules == pytest.approx(interval.idle_millijoules / 1_000)


def test_tokens_of_others_are_not_claimed() -> None:
    played = world()
    sent = played.send("r", A)
    for _ in range(10):
        played.chunks(sent, 10)
        played.counted[A].generated += 10  # type: ignore[operator]
        played.counted[A].running = 2.0
        go(played, 0.5, 100_000)
    played.counted[A].running = 0.0
    played.end(sent, tokens=100, prompt_tokens=100)
    go(played, 0.5, 40_000)

    others = sum(interval.others_millijoules for interval in played.intervals)
    assert energy(played, "r").millijoules + others == 1_000_000
    assert 0.40 < others / 1_000_000 < 0.50  # half of the decoding, none of the prefill


def test_a_pair_of_engines_both_charge_the_request() -> None:
    played = world("a", "b", hold_s=3.0)
    tokens = 24_000
    assert ENGINE.prefill_seconds(tokens, 1.0, float(tokens * tokens)) == pytest.approx(1.0, abs=0.1)
    sent = played.send("r", B, prefill_endpoint=A, prompt_tokens=tokens)
    go(played, 1.0, 500_000, A)
    played.chunks(sent, 1)
    go(played, 0.2, 24_000)
    played.now_s += 0.7
    played.chunks(sent, 19)
    go(played, 0.1, 500_000, B)
    played.end(sent, tokens=20, prompt_tokens=tokens)
    for _ in range(20):
        go(played, 0.2, 24_000)

    drawn = {key: sum(each.requests_millijoules for each in played.intervals if each.endpoint == key) for key in (A, B)}
    assert drawn[A] == pytest.approx(500_000, rel=0.2)
    assert drawn[B] == pytest.approx(500_000, rel=0.2)
    found = energy(played, "r")
    assert found.millijoules == drawn[A] + drawn[B]
    assert found.coverage == pytest.approx(1.0, abs=0.2)
    assert [(share.endpoint, share.millijoules) for share in found.engines] == [(B, drawn[B]), (A, drawn[A])]
    for name in ("idle_joules", "accelerator_seconds"):
        assert sum(getattr(share, name) for share in found.engines) == pytest.approx(getattr(found, name))


def test_what_one_engine_drew_is_told_as_one() -> None:
    played = world("a")
    sent = played.send("r", A)
    played.chunks(sent, 1)
    go(played, 0.5, 50_000)
    played.end(sent, tokens=1, prompt_tokens=100)
    go(played, 0.5, 1_000)
    assert energy(played, "r").engines == ()
    (share,) = energy(played, "r").by_engine(A, "R", "ns/v")
    assert (share.endpoint, share.region, share.variant) == (A, "R", "ns/v")
    assert share.millijoules == energy(played, "r").millijoules


def test_an_answer_that_cannot_be_watched_is_put_right_by_its_usage() -> None:
    played = world(hold_s=10.0)
    seen = played.send("seen", A)
    blind = played.send("blind", A, streaming=False)
    for _ in range(10):
        played.tick(0.2)
        played.chunks(seen, 10)
        played.counted[A].generated += 10  # type: ignore[operator]
        played.counted[A].running = 2.0
    go(played, 0.01, 500_000)
    played.counted[A].prompt_tokens += 100  # type: ignore[operator]
    played.counted[A].first_tokens += 1  # type: ignore[operator]
    played.end(seen, tokens=100, prompt_tokens=100)
    played.end(blind, tokens=100, prompt_tokens=100)
    played.counted[A].running = 0.0
    for _ in range(60):
        go(played, 0.2, 10_000)

    assert energy(played, "blind").millijoules == pytest.approx(energy(played, "seen").millijoules, rel=0.12)


def test_an_answer_that_cannot_be_watched_has_a_part_before_it_ends() -> None:
    played = world()
    played.counted[A].running = 1.0
    played.send("blind", A, streaming=False)
    for _ in range(10):
        played.counted[A].generated += 10  # type: ignore[operator]
        go(played, 0.2, 50_000)

    own = sum(interval.requests_millijoules for interval in played.intervals)
    assert own > 0.9 * sum(interval.total_millijoules for interval in played.intervals)


@pytest.mark.parametrize("status", [400, 429, 503])
def test_a_refused_request_drew_nothing(status: int) -> None:
    played = world()
    sent = played.send("r", A)
    played.now_s += 0.1
    played.end(sent, status=status)
    go(played, 0.9, 100_000)

    assert energy(played, "r").millijoules == 0
    assert energy(played, "r").coverage == pytest.approx(1.0)


def test_who_leaves_during_the_prefill_pays_for_what_was_done() -> None:
    played = world(hold_s=3.0)
    sent = played.send("r", A, prompt_tokens=100_000, due_s=10.0)
    go(played, 9.5, 2_000_000)
    played.end(sent, status=None, cause=Cause.DISCONNECTED)
    for _ in range(8):
        go(played, 0.5, 60_000)

    assert energy(played, "r").millijoules > 0


def test_counters_that_change_seldom_share_out_all_that_happened_since() -> None:
    played = world()
    sent = played.send("r", A)
    for _ in range(50):
        played.chunks(sent, 10)
        played.tick(0.5)
    played.end(sent, tokens=500, prompt_tokens=100)
    assert played.energies == {}
    played.tick(4.0)
    go(played, 1.0, 9_000_000)

    r = energy(played, "r")
    assert r.millijoules + round(r.idle_joules * 1_000) == 9_000_000
    assert r.coverage == pytest.approx(1.0)
    assert r.accelerator_seconds == pytest.approx(25.0)


def test_short_intervals_are_put_together() -> None:
    played = world(limits=CounterLimits(max_watts=5_000.0, shortest_seconds=5.0))
    for _ in range(51):
        go(played, 0.2, 16_000)

    assert [interval.end_unix_s - interval.start_unix_s for interval in played.intervals] == pytest.approx(
        [5.0, 5.0], abs=0.21
    )


def test_energy_before_the_meter_began_is_never_claimed() -> None:
    played = Played("a", engine=ENGINE)
    counted = played.counted[A]
    counted.accelerators = {"gpu": 987_654_321}
    counted.generated = 1e6
    sent = played.send("r", A)
    played.tick()
    played.chunks(sent, 5)
    go(played, 1.0, 700_000)  # nobody knows since when the counter had stood still
    played.chunks(sent, 5)
    go(played, 1.0, 300_000)
    played.end(sent, tokens=10, prompt_tokens=100)
    go(played, 1.0, 80_000)

    assert energy(played, "r").millijoules <= 300_000
    assert energy(played, "r").coverage == pytest.approx(0.5)


def test_an_engine_that_starts_again_leaves_its_interval_to_nobody() -> None:
    played = world()
    sent = played.send("r", A)
    played.chunks(sent, 5)
    counted = played.counted[A]
    counted.accelerators, counted.generated = {"gpu": 70_000}, 0.0
    played.tick(1.0)
    played.end(sent, status=None, cause=Cause.DISCONNECTED)
    go(played, 1.0, 80_000)

    assert played.energies == {"r": None}
    assert played.meter.totals.without == {WithoutEnergy.UNCOVERED: 1}
    assert played.meter.totals.refused == {Refusal.RESET: 1}
    assert [interval.unattributed_millijoules for interval in played.intervals] == [70_000, 0]


def test_absurd_counters_are_refused_and_nothing_is_made_of_them() -> None:
    played = world()
    sent = played.send("r", A)
    played.chunks(sent, 5)
    go(played, 1.0, 10**12)
    played.end(sent, tokens=5)
    go(played, 1.0, 1_000)

    assert played.energies == {"r": None}
    assert [interval.total_millijoules for interval in played.intervals] == [1_000]
    assert played.meter.totals.refused == {Refusal.ABSURD: 1}


def test_without_the_engines_tokens_nobody_knows_whose_joules() -> None:
    played = world()
    played.counted[A].generated = None
    sent = played.send("r", A)
    played.chunks(sent, 5)
    go(played, 1.0, 200_000)
    played.end(sent, tokens=5)
    go(played, 1.0, 80_000)

    assert played.energies == {"r": None}
    assert sum(interval.unattributed_millijoules for interval in played.intervals) == 280_000


def test_an_endpoint_without_counters_tells_at_once() -> None:
    played = Played("a", engine=ENGINE)
    played.tick()
    sent = played.send("r", A)
    played.chunks(sent, 5)
    played.end(sent, tokens=5)

    assert played.energies == {"r": None}
    assert played.meter.totals.without == {WithoutEnergy.NO_COUNTER: 1}


def test_a_request_to_nowhere_is_told_without_energy() -> None:
    played = world()
    sent = played.send("r", "ns/gone")
    played.end(sent)

    assert played.energies == {"r": None}
    assert played.meter.totals.without == {WithoutEnergy.UNKNOWN_ENDPOINT: 1}


def test_what_waits_is_bounded() -> None:
    played = world(max_waiting=3)
    for number in range(5):
        sent = played.send(str(number), A)
        played.chunks(sent, 2)
        played.end(sent, tokens=2)

    assert played.meter.waiting == 3
    assert played.energies == {"0": None, "1": None}
    assert played.meter.totals.without == {WithoutEnergy.SHED: 2}


def test_a_counter_that_has_died_keeps_nobody_waiting_for_ever() -> None:
    played = world()
    sent = played.send("r", A)
    played.chunks(sent, 2)
    played.end(sent, tokens=2)
    for _ in range(100):
        played.tick(1.0)

    assert played.energies == {"r": None}
    assert played.meter.waiting == 0


def test_an_endpoint_that_goes_settles_with_what_there_is() -> None:
    played = world()
    sent, late = played.send("r", A), played.send("late", A)
    played.chunks(sent, 2)
    played.chunks(late, 2)
    go(played, 1.0, 200_000)
    played.end(sent, tokens=2)
    played.meter.removed(A)
    del played.states[A]
    played.meter.tick(played.now_s)
    played.end(late, tokens=2)

    assert energy(played, "r").millijoules + energy(played, "late").millijoules == 200_000
    assert played.meter.waiting == 0


def test_what_is_in_flight_when_the_meter_ends_is_told() -> None:
    played = world(hold_s=3.0)
    sent = played.send("r", A)
    played.now_s += 0.1
    played.chunks(sent, 2)
    go(played, 0.9, 200_000)
    played.end(sent, tokens=2)
    assert played.energies == {}

    played.meter.flush()

    r = energy(played, "r")
    assert r.millijoules > 0
    assert r.millijoules + round(1_000 * r.idle_joules) == 200_000


def node(read_s: float, millijoules: dict[str, int], pods: dict[str, set[str]]) -> dict[str, NodeReading]:
    return {
        "10.9.9.9": NodeReading(
            read_s,
            {
                uuid: Accelerator(value, frozenset(("ns", pod) for pod in pods[uuid]))
                for uuid, value in millijoules.items()
            },
        )
    }


def on_nodes(*names: str) -> Played:
    return Played(*names, engine=ENGINE, node="10.9.9.9")


def test_a_node_tells_whose_accelerator_draws() -> None:
    played = on_nodes("a", "b")
    pods = {"g0": {"a"}, "g1": {"b"}}
    for now in range(3):
        played.nodes = node(float(now), {"g0": now * 100_000, "g1": now * 70_000}, pods)
        played.tick(0.0 if now == 0 else 1.0)
    sent = played.send("r", A)
    played.chunks(sent, 10)
    played.nodes = node(3.0, {"g0": 450_000, "g1": 210_000}, pods)
    played.tick(1.0)
    played.end(sent, tokens=10)
    for now in (4, 5):
        played.nodes = node(float(now), {"g0": 450_000 + now * 1_000, "g1": 210_000 + now * 1_000}, pods)
        played.tick(1.0)

    assert energy(played, "r").millijoules == 250_000
    assert {interval.endpoint for interval in played.intervals} == {A, B}


def test_pods_on_one_accelerator_share_it_by_work_and_it_counts_once() -> None:
    played = on_nodes("a", "b")
    pods = {"g0": {"a", "b"}}
    played.tick()
    for now in (1, 2):
        played.nodes = node(float(now), {"g0": now * 1_000}, pods)
        played.tick(1.0)
    one, two = played.send("one", A), played.send("two", B)
    for _ in range(2):
        played.chunks(one, 10)
        played.chunks(two, 10)
        played.tick(0.5)
    played.nodes = node(played.now_s, {"g0": 502_000}, pods)
    played.tick(0.0)
    played.end(one, tokens=20)
    played.end(two, tokens=20)
    for _ in range(2):
        played.nodes = node(played.now_s + 1.0, {"g0": int(502_000 + played.now_s * 100)}, pods)
        played.tick(1.0)

    assert energy(played, "one").millijoules == energy(played, "two").millijoules
    busy = [interval for interval in played.intervals if interval.requests_millijoules]
    assert sum(interval.total_millijoules for interval in busy) == 500_000
    assert energy(played, "one").accelerator_seconds == pytest.approx(0.5)  # half of the one second


def test_an_accelerator_that_a_stranger_shares_is_a_line_of_its_own() -> None:
    played = on_nodes("a")
    pods = {"g0": {"a", "somebody-else"}}
    played.tick()
    for now in (1, 2):
        played.nodes = node(float(now), {"g0": now * 1_000}, pods)
        played.tick(1.0)
    sent = played.send("r", A)
    played.chunks(sent, 10)
    played.nodes = node(3.0, {"g0": 302_000}, pods)
    played.tick(1.0)
    played.end(sent, tokens=10)
    played.nodes = node(4.0, {"g0": 303_000}, pods)
    played.tick(1.0)

    assert played.energies == {"r": None}
    assert booked(played, "unattributed") == 302_000 - 2_000 + 1_000
    assert booked(played, "requests") == 0


def test_a_node_that_is_silent_for_long_is_a_gap() -> None:
    played = on_nodes("a")
    pods = {"g0": {"a"}}
    played.tick()
    for now in (1, 2):
        played.nodes = node(float(now), {"g0": now * 1_000}, pods)
        played.tick(1.0)
    sent = played.send("r", A)
    played.chunks(sent, 10)
    played.end(sent, tokens=10)
    for _ in range(100):
        played.tick(1.0)

    assert played.energies == {"r": None}
    assert Refusal.GAP in played.meter.totals.refused


def test_a_person_sees_what_was_learned() -> None:
    played = world()
    go(played, 2.0, 160_000)

    row = played.meter.row(A)

    assert row is not None
    assert row["last_interval"] == {"seconds": 2.0, "joules": 160.0, "watts": 80.0, "refused": None}
    assert row["source"] == "engine"
    assert row["weights_joules"]["prompt_token"] == ENGINE.energy.prefill_joules_per_token
    assert played.meter.row("ns/none") is None


async def test_it_looks_by_itself_and_a_defect_does_not_end_that(caplog: pytest.LogCaptureFixture) -> None:
    played = world()
    played.flying.append(None)  # type: ignore[arg-type]
    async with played.meter:
        async with asyncio.timeout(5.0):
            while played.meter.totals.failures < 2:
                await asyncio.sleep(0.01)
        played.flying.clear()
        sent = played.send("r", A)
        played.chunks(sent, 2)
        for key, counted in played.counted.items():
            counted.accelerators = raised(counted.accelerators, 200_000)
            played.now_s += 1.0
            played.page(key)
        played.end(sent, tokens=2)
        async with asyncio.timeout(5.0):
            while "r" not in played.energies:
                await asyncio.sleep(0.01)

    assert energy(played, "r").millijoules > 0
    assert "the next one is due" in caplog.text


def test_metrics() -> None:
    played = world()
    sent = played.send("r", A)
    played.chunks(sent, 2)
    go(played, 1.0, 200_000)
    played.end(sent, tokens=2)
    go(played, 1.0, 80_000)
    registry = CollectorRegistry()
    meter = played.meter
    registry.register(
        MeteringCollector(meter.totals, waiting=lambda: meter.waiting, node_failures=lambda: {"status": 3})
    )

    page = generate_latest(registry).decode()

    assert "heliotrope_requests_with_energy_total 1.0" in page
    assert "heliotrope_requests_awaiting_energy 0.0" in page
    assert 'heliotrope_node_energy_failures_total{reason="status"} 3.0' in page


def test_a_request_whose_last_slice_lies_in_two_intervals_waits_for_both() -> None:
    played = on_nodes("a")
    pods = {"g0": {"a"}}
    played.tick()
    for now in (1, 2):
        played.nodes = node(float(now), {"g0": now * 1_000}, pods)
        played.tick(1.0)
    sent = played.send("r", A)
    played.chunks(sent, 5)
    played.tick(1.0)
    played.now_s += 0.3
    played.chunks(sent, 5)
    played.end(sent, tokens=10)
    played.nodes = node(3.5, {"g0": 302_000}, pods)
    played.tick(0.7)
    assert played.energies == {}
    played.nodes = node(4.5, {"g0": 402_000}, pods)
    played.tick(1.0)

    assert energy(played, "r").millijoules == sum(each.requests_millijoules for each in played.intervals)
    assert sum(each.unattributed_millijoules for each in played.intervals) == 0


def test_work_that_becomes_known_too_late_is_not_laid_over_what_came_after_the_request() -> None:
    played = world()
    sent = played.send("r", A)
    sent.first_s, sent.last_s = 1.2, 1.5
    played.counted[A].generated += 10  # type: ignore[operator]
    played.flying.remove(sent)  # its answer came and went between two looks
    go(played, 1.0, 200_000)
    played.flying.append(sent)
    played.end(sent, tokens=10)
    go(played, 1.0, 80_000)

    assert energy(played, "r").millijoules == 0
    assert played.intervals[-1].idle_millijoules == 80_000


def test_nothing_is_kept_of_requests_that_are_settled() -> None:
    played = world()
    for number in range(20):
        sent = played.send(str(number), A, streaming=number % 2 == 0)
        if sent.streaming:
            played.chunks(sent, 3)
        go(played, 0.5, 60_000)
        played.end(sent, tokens=3, prompt_tokens=100)
    for _ in range(3):
        go(played, 0.5, 40_000)

    meter = played.meter
    (timeline,) = meter._timelines.values()
    (domain,) = meter._domains.values()
    assert len(played.energies) == 20
    assert (meter._followed, meter.waiting, timeline._unwatched) == ({}, 0, {})
    assert len(timeline._sent) + len(timeline._waiting) + len(timeline._worked) == 0
    assert sum(len(each.works) for each in timeline.slices) == 0
    assert not any(account.lines for account in domain._accounts())
