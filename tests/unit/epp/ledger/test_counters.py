import pytest
from prometheus_client import CollectorRegistry
from tests.unit.epp.ledger.builders import NAN, clock, drew, finished, metered, store

from heliotrope_epp.datalayer.store import EndpointStore
from heliotrope_epp.ledger.counters import MAX_SERIES, EnergyCounters, LedgerCollector
from heliotrope_epp.ledger.places import Places
from heliotrope_epp.ledger.writer import Health

WHO = {"region": "es", "variant": "llm/v", "model": "m", "tenant": "t", "arm": "policy"}
BASIS = {
    "signal_type": "average",
    "emission_factor": "lifecycle",
    "source": "static",
    "estimated": "unknown",
    "pue": "1.5",
}


def counters(endpoints: EndpointStore | None = None) -> tuple[CollectorRegistry, EnergyCounters]:
    registry = CollectorRegistry()
    return registry, EnergyCounters(registry, Places(endpoints or store()), clock())


def test_a_request_is_counted_in_everything_it_cost() -> None:
    registry, sink = counters()
    sink.measured(finished(), drew())

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, {**WHO, **labels})

    # 3,600 J of the accelerators, 400 J of the host, half a second of the replica; PUE 1.5, 100 g/kWh.
    assert value("heliotrope_energy_joules_total", line="request") == 3_600.0
    grams = value("heliotrope_grams_co2e_total", line="request", boundary="accelerators+host", **BASIS)
    assert grams == pytest.approx(4_000 / 3.6e6 * 150)
    assert value("heliotrope_embodied_grams_co2e_total") == pytest.approx(0.005)  # 10⁶ g ÷ 10⁸ s × 0.5 s
    assert value("heliotrope_water_liters_total") == pytest.approx(4_000 / 3.6e6 * 2.0)
    hardware = value("heliotrope_cost_total", component="hardware", currency="USD")
    assert hardware == pytest.approx(0.0005)  # 3.6 ÷ 3,600 s × 0.5 s
    electricity = value("heliotrope_cost_total", component="electricity", currency="EUR")
    assert electricity == pytest.approx(4_000 / 3.6e6 * 1.5 * 0.1)


def test_lines_and_requests_add_up_to_what_the_counters_moved() -> None:
    registry, sink = counters()
    sink.metered(metered())
    sink.measured(finished(), drew())
    lines = {
        sample.labels["line"]: sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "heliotrope_energy_joules_total"
    }
    assert lines == {"request": 3_600.0, "idle": 900.0, "others": 400.0, "unattributed": 100.0}
    place = {"region": "es", "variant": "llm/v"}
    assert registry.get_sample_value("heliotrope_metered_energy_joules_total", place) == sum(lines.values())
    assert registry.get_sample_value("heliotrope_host_energy_joules_total", place) == 1_000.0


def test_without_a_fresh_signal_energy_is_unpriced() -> None:
    registry, sink = counters(store(fresh=False))
    sink.measured(finished(), drew())
    assert registry.get_sample_value("heliotrope_unpriced_energy_joules_total", {"line": "request", **WHO}) == 4_000.0
    assert "heliotrope_grams_co2e_total" not in {s.name for f in registry.collect() for s in f.samples}


def test_without_a_counter_the_request_is_unmeasured() -> None:
    registry, sink = counters()
    sink.measured(finished(), None)
    assert registry.get_sample_value("heliotrope_unmeasured_requests_total", WHO) == 1.0
    assert "heliotrope_energy_joules_total" not in {s.name for f in registry.collect() for s in f.samples}


def test_what_is_not_known_counts_nowhere() -> None:
    registry, sink = counters()
    sink.measured(finished(region=None, variant=None), drew(host_joules=NAN, accelerator_seconds=NAN))
    sink.metered(metered(host_joules=NAN, region=None, variant=None))
    names = {sample.name for family in registry.collect() for sample in family.samples}
    assert not {name for name in names if "cost" in name or "water" in name or "embodied" in name or "host" in name}


def test_series_are_bounded_and_nothing_is_lost() -> None:
    registry, sink = counters()
    for i in range(MAX_SERIES + 300):
        sink.measured(finished(tenant=f"t{i % 45}", model=f"m{i // 45}"), drew(millijoules=1_000))
    samples = [
        sample
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "heliotrope_energy_joules_total"
    ]
    assert len(samples) <= MAX_SERIES + 1
    assert sum(sample.value for sample in samples) == pytest.approx(MAX_SERIES + 300)


def test_the_ledgers_own_state_is_told() -> None:
    registry = CollectorRegistry()
    health = Health(rows_written=5, lost_rows=2, bytes=7)
    registry.register(LedgerCollector(health, folded=lambda: 3, unwritten_seconds=lambda: 0.25))
    assert registry.get_sample_value("heliotrope_ledger_rows_written_total") == 5
    assert registry.get_sample_value("heliotrope_ledger_lost_rows_total") == 2
    assert registry.get_sample_value("heliotrope_ledger_folded_entries_total") == 3
    assert registry.get_sample_value("heliotrope_ledger_size_bytes") == 7
    assert registry.get_sample_value("heliotrope_ledger_unwritten_seconds") == 0.25
