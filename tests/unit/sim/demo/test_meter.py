import pytest

from heliotrope.carbon.series import Point, Series
from heliotrope_sim.demo.meter import Meter, MeteredEngine, Sample, sums_by_name

ENGINES = (
    MeteredEngine("a-0", "a", "", host_watts=100.0),
    MeteredEngine("a-1", "a", "", host_watts=100.0),
    MeteredEngine("b-0", "b", "", host_watts=100.0),
)


def metered(joules_per_second: float) -> Meter:
    meter = Meter(ENGINES)
    for engine in ENGINES:
        for second in range(11):
            sample = Sample(float(second), 1000.0 + joules_per_second * second, 4.0, 1.0, 0.002 * second, 2.0 * second)
            meter.samples[engine.name].append(sample)
    return meter


def test_energy_counts_from_the_first_sample_with_hosts_and_is_priced_as_it_was_drawn() -> None:
    grids = {
        "a": Series.from_points([Point(1000.0, 100.0), Point(1005.0, 300.0)]),
        "b": Series.from_points([Point(1000.0, 0.0)]),
    }
    regions = metered(400.0).by_region(grids, {"a": 1.5, "b": 1.5}, unix_offset_s=1000.0)
    assert regions["a"].accelerator_joules == pytest.approx(2 * 4000.0)
    assert regions["a"].host_joules == pytest.approx(2 * 1000.0)
    # 10 kJ in all, half at 100 and half at 300 g/kWh, behind PUE 1.5
    assert regions["a"].grams_co2e == pytest.approx(10_000 / 3.6e6 * 1.5 * 200.0)
    assert regions["b"].grams_co2e == 0.0
    assert regions["b"].joules == pytest.approx(5000.0)


def test_mean_batch_and_lateness() -> None:
    meter = metered(1.0)
    assert meter.mean_running("a", 2.0, 8.0) == 4.0
    assert meter.mean_lateness_seconds() == pytest.approx(0.001)
    assert Meter(ENGINES).mean_lateness_seconds() == 0.0


def test_prometheus_text_is_summed_over_labels() -> None:
    page = '# TYPE a counter\na{gpu="0"} 5\na{gpu="1"} 7.5\nab 100\nb 1e3\n'
    assert sums_by_name(page, ("a", "b", "c")) == {"a": 12.5, "b": 1000.0, "c": 0.0}
