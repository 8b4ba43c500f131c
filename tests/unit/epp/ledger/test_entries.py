from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.epp.ledger.builders import NAN, NOW, drew, finished, metered, reading

from heliotrope.carbon.footprint import Boundary
from heliotrope_epp.ledger.entries import Entry, RequestLabels, interval_entries, request_entries
from heliotrope_epp.ledger.places import Place
from heliotrope_epp.ledger.rows import Line, Signal, Site
from heliotrope_epp.outcomes.energy import EngineShare, MeteredInterval, RequestEnergy
from heliotrope_epp.outcomes.finished import FinishedRequest

SITE = Site(pue=1.5)
PLACE = Place(SITE, reading())
LABELS = RequestLabels("m", "auto", "t", "short")


def of_request(request: FinishedRequest, energy: RequestEnergy | None, place: Place = PLACE) -> list[Entry]:
    return request_entries(request, energy, [place], LABELS, 300, NOW + 2.0)


def of_interval(interval: MeteredInterval, place: Place = PLACE) -> list[Entry]:
    return interval_entries(interval, place, 300, NOW + 2.0)


def total(entries: list[Entry], line: Line) -> int:
    return sum(amounts.millijoules for key, amounts in entries if key.line is line)


def test_a_request_takes_its_energy_out_of_the_unrecorded() -> None:
    entries = of_request(finished(), drew())
    assert total(entries, Line.REQUEST) == 3_600_000
    assert total(entries, Line.UNRECORDED) == -3_600_000
    key, amounts = entries[0]
    assert (key.line, key.region, key.variant, key.model, key.tenant) == (Line.REQUEST, "es", "llm/v", "m", "t")
    assert key.asked_model == "auto"
    assert (key.policy, key.arm, key.request_class) == ("llm/green", "policy", "short")
    assert (amounts.requests, amounts.succeeded, amounts.without_usage) == (1, 1, 0)
    assert (amounts.prompt_tokens, amounts.cached_tokens, amounts.output_tokens) == (10, 4, 5)
    assert (amounts.accelerator_seconds, amounts.idle_share_joules, amounts.covered_requests) == (0.5, 7.0, 1.0)


def test_what_each_engine_drew_stands_at_its_own_place() -> None:
    engines = (
        EngineShare("llm/a", "es", "llm/v", 2_600_000, 5.0, 300.0, 0.4),
        EngineShare("llm/e", "no", "llm/p", 1_000_000, 2.0, NAN, 0.1),
    )
    clean = Place(Site(pue=1.1), reading(intensity_g_per_kwh=10.0))
    energy = drew(host_joules=NAN, engines=engines)
    entries = request_entries(finished(), energy, [PLACE, clean], LABELS, 300, NOW + 2.0)
    rows = {key.region: (key, amounts) for key, amounts in entries if key.line is Line.REQUEST}
    assert {region: amounts.millijoules for region, (_, amounts) in rows.items()} == {"es": 2_600_000, "no": 1_000_000}
    assert {region: key.variant for region, (key, _) in rows.items()} == {"es": "llm/v", "no": "llm/p"}
    assert {region: amounts.requests for region, (_, amounts) in rows.items()} == {"es": 1, "no": 0}
    assert rows["no"][1].grams_co2e == pytest.approx(1_000 / 3.6e6 * 1.1 * 10.0)
    assert rows["es"][0].boundary is Boundary.ACCELERATORS_AND_HOST
    assert rows["no"][0].boundary is Boundary.ACCELERATORS
    booked = entries + [
        entry
        for share in engines
        for entry in of_interval(
            metered(region=share.region, variant=share.variant, requests_millijoules=share.millijoules)
        )
    ]
    for region in ("es", "no"):
        left = [a.millijoules for key, a in booked if key.region == region and key.line is Line.UNRECORDED]
        assert sum(left) == 0


def test_two_engines_at_one_place_make_one_request() -> None:
    engines = tuple(EngineShare("llm/a", "es", "llm/v", 1_800_000, 3.0, 200.0, 0.2) for _ in range(2))
    entries = request_entries(finished(), drew(engines=engines), [PLACE, PLACE], LABELS, 300, NOW + 2.0)
    assert sum(amounts.requests for _, amounts in entries) == 1
    assert total(entries, Line.REQUEST) == 3_600_000


def test_grams_are_of_accelerators_and_host_with_their_signal() -> None:
    key, amounts = of_request(finished(), drew())[0]
    assert key.boundary is Boundary.ACCELERATORS_AND_HOST
    assert key.signal == Signal("average", "lifecycle", "static", None)
    # (3,600 J + 400 J) ÷ 3,600,000 J/kWh × 1.5 × 100 g/kWh
    assert amounts.grams_co2e == pytest.approx(4_000 / 3.6e6 * 150)
    assert amounts.signal_age_seconds == 62.0


def test_an_unknown_host_share_narrows_the_boundary_and_is_not_zero() -> None:
    entries = of_request(finished(), drew(host_joules=NAN))
    key, amounts = entries[0]
    assert key.boundary is Boundary.ACCELERATORS
    assert amounts.grams_co2e == pytest.approx(3_600 / 3.6e6 * 150)
    assert not [key for key, _ in entries if key.line is Line.HOST]


def test_without_a_fresh_signal_or_pue_there_are_no_grams() -> None:
    for place in (Place(SITE, None), Place(Site(), reading())):
        key, amounts = of_request(finished(), drew(), place)[0]
        assert key.signal is None
        assert amounts.grams_co2e == 0.0


def test_a_request_over_slots_is_spread_and_counted_once_at_its_end() -> None:
    entries = of_request(finished(ended_unix_s=NOW + 400), drew(start_unix_s=NOW + 200, end_unix_s=NOW + 400))
    rows = [(key.slot_unix_s - NOW, amounts) for key, amounts in entries if key.line is Line.REQUEST]
    assert [slot for slot, _ in rows] == [0, 300]
    assert [amounts.millijoules for _, amounts in rows] == [1_800_000, 1_800_000]
    assert [amounts.requests for _, amounts in rows] == [0, 1]
    assert [amounts.output_tokens for _, amounts in rows] == [0, 5]
    assert [amounts.covered_requests for _, amounts in rows] == [0.0, 1.0]


def test_a_request_without_a_counter_is_counted_and_its_energy_is_unknown() -> None:
    ((key, amounts),) = of_request(finished(output_tokens=None, prompt_tokens=None, cached_tokens=None), None)
    assert not key.measured
    assert key.slot_unix_s == NOW
    assert (amounts.requests, amounts.without_usage) == (1, 1)


def test_a_failed_request_is_not_counted_as_succeeded() -> None:
    assert of_request(finished(status=500), drew())[0][1].succeeded == 0


def test_an_interval_has_its_lines() -> None:
    entries = of_interval(metered())
    assert {line: total(entries, line) for line in Line} == {
        Line.REQUEST: 0,
        Line.UNRECORDED: 3_600_000,
        Line.OTHERS: 400_000,
        Line.IDLE: 900_000,
        Line.UNATTRIBUTED: 100_000,
        Line.HOST: 0,
    }
    (host,) = (amounts for key, amounts in entries if key.line is Line.HOST)
    assert host.host_joules == 1_000.0
    assert not [key for key, _ in of_interval(metered(host_joules=NAN)) if key.line is Line.HOST]


COUNT = st.integers(0, 10**12)
MOMENT = st.floats(NOW, NOW + 5_000)


@given(st.lists(st.tuples(MOMENT, MOMENT, COUNT, COUNT, COUNT, COUNT, st.lists(st.tuples(MOMENT, COUNT), max_size=4))))
def test_all_rows_together_are_the_counters_to_the_millijoule(
    drawn: list[tuple[float, float, int, int, int, int, list[tuple[float, int]]]],
) -> None:
    entries: list[Entry] = []
    counted = host = 0.0
    for start, end, claimed, others, idle, nobody, requests in drawn:
        interval = metered(
            start_unix_s=start,
            end_unix_s=end,
            total_millijoules=claimed + others + idle + nobody,
            requests_millijoules=claimed,
            others_millijoules=others,
            idle_millijoules=idle,
            unattributed_millijoules=nobody,
        )
        entries += of_interval(interval)
        counted += interval.total_millijoules
        host += interval.host_joules
        for since, millijoules in requests:
            entries += of_request(finished(), drew(start_unix_s=since, end_unix_s=end, millijoules=millijoules))
    assert sum(amounts.millijoules for _, amounts in entries) == counted
    assert sum(amounts.host_joules for _, amounts in entries) == pytest.approx(host, abs=1e-6)


def test_once_every_request_has_ended_nothing_is_unrecorded() -> None:
    ends = [finished(request_id=str(i)) for i in range(3)]
    entries = of_interval(metered(requests_millijoules=1_000, total_millijoules=2_400_000 - 2_600_000 + 1_600_000))
    for request, millijoules in zip(ends, (333, 333, 334), strict=True):
        entries += of_request(request, replace(drew(), millijoules=millijoules))
    assert total(entries, Line.UNRECORDED) == 0
