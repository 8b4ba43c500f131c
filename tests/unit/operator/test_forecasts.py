"""Forecasts of regions: the source's or ours, with spread and error, across starts, failures and changed specs."""

import asyncio
import random
import threading
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from tests.unit.operator import objects
from tests.unit.operator.memory import metrics
from tests.unit.operator.objects import NOW, NOW_S

from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope.api.v1alpha1.regionprofile import (
    EmissionFactor,
    Forecast,
    ForecastError,
    ForecastPoint,
    IntensityReading,
    RegionProfileStatus,
    SignalType,
)
from heliotrope.carbon.series import Point, Series
from heliotrope.errors import NoDataError, ThrottledError
from heliotrope_operator import forecasts as module
from heliotrope_operator.forecasts import HISTORY_SPANS_S, Forecasts
from heliotrope_operator.resources import Key
from heliotrope_operator.signals import Published

HOUR = 3600.0
DAY = 24 * HOUR


def intensity(time_unix_s: float) -> float:
    """A grid with sun at noon."""
    hour = time_unix_s / HOUR
    noise = np.random.default_rng(int(hour)).normal(0.0, 10.0)
    return float(max(300.0 + 100.0 * np.cos(hour / 24.0 * 2.0 * np.pi) + noise, 0.0))


def series(start_unix_s: float, end_unix_s: float) -> Series:
    first = -(-start_unix_s // HOUR) * HOUR
    return Series.from_points([Point(time, intensity(time)) for time in np.arange(first, end_unix_s, HOUR)])


class Bench:
    """Forecasts over a source whose past is a function of time; what fails raises."""

    def __init__(self, failures: Iterable[Exception] = (), *, has_history: bool = True) -> None:
        self.now_s = NOW_S
        self.failures = list(failures)
        self.has_history = has_history
        self.asked: list[float] = []
        self.queued: list[Key] = []
        self.metrics = metrics()
        self.forecasts = self.made()

    def made(self) -> Forecasts:
        return Forecasts(
            self.metrics,
            self.history,
            unix_clock=lambda: self.now_s,
            enqueue=self.queued.extend,
            rng=random.Random(1),
        )

    async def history(self, name: str, start_unix_s: float, end_unix_s: float) -> Series | None:
        self.asked.append(end_unix_s - start_unix_s)
        if self.failures:
            raise self.failures.pop(0)
        return series(start_unix_s, end_unix_s) if self.has_history else None

    def trainings(self, outcome: str) -> float:
        name = "heliotrope_carbon_forecast_trainings_total"
        return self.metrics.registry.get_sample_value(name, {"outcome": outcome}) or 0.0

    def answer(self, forecast: Forecast | None = None) -> Published:
        time = self.now_s // HOUR * HOUR
        reading = IntensityReading(
            value=round(intensity(time), 3),
            time=datetime.fromtimestamp(time, UTC),
            source="file",
            signal_type=SignalType.AVERAGE,
            emission_factor=EmissionFactor.LIFECYCLE,
        )
        return Published(reading, forecast)

    def complete(self, profile: RegionProfile, forecast: Forecast | None = None) -> Published:
        return self.forecasts.complete(profile, self.answer(forecast))

    async def learned(self, profile: RegionProfile, forecast: Forecast | None = None) -> Published:
        """After learning that is under way has ended."""
        self.complete(profile, forecast)
        for task in [task for task in asyncio.all_tasks() if task.get_name().startswith("forecaster")]:
            await task
        return self.complete(profile, forecast)


def profile(status: RegionProfileStatus | None = None, **spec: Any) -> RegionProfile:
    document = None if status is None else status.model_dump(by_alias=True, exclude_none=True, mode="json")
    return objects.read_region(status=document, **({"source": {"file": {"path": "x", "valueColumn": "v"}}} | spec))


def of_provider(*values: float, now: datetime = NOW) -> Forecast:
    points = tuple(ForecastPoint(time=now + timedelta(hours=n), value=value) for n, value in enumerate(values))
    return Forecast(issued_at=now, source="provider", points=points)


async def test_history_of_the_source_gives_a_forecast_with_its_spread() -> None:
    bench = Bench()
    first = bench.complete(profile())
    assert first.forecast is None  # nothing waits for it

    seen = await bench.learned(profile())

    assert bench.asked == [HISTORY_SPANS_S[0]]
    assert [key.name for key in bench.queued] == ["es"]
    forecast = seen.forecast
    assert forecast is not None
    assert forecast.source == "heliotrope anomalies"
    assert len(forecast.points) == 72
    assert forecast.points[0].time == NOW + timedelta(hours=1)
    truth = np.array([intensity(point.time.timestamp()) for point in forecast.points])
    assert np.abs(truth - [point.value for point in forecast.points]).mean() < 20.0
    lower = np.array([point.lower for point in forecast.points])
    upper = np.array([point.upper for point in forecast.points])
    assert 0.6 < ((truth >= lower) & (truth <= upper)).mean() < 0.98
    assert bench.trainings("learned") == 1


async def test_learning_happens_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    train = module.train

    def spied(*arguments: Any) -> Any:
        threads.append(threading.get_ident())
        return train(*arguments)

    monkeypatch.setattr(module, "train", spied)
    await Bench().learned(profile())
    assert threads
    assert threading.get_ident() not in threads


async def test_it_learns_again_only_hours_later() -> None:
    bench = Bench()
    for _ in range(5):
        await bench.learned(profile())
    assert bench.trainings("learned") == 1
    assert len(bench.asked) == 1


async def test_without_a_past_it_builds_up() -> None:
    bench = Bench(has_history=False)
    assert (await bench.learned(profile())).forecast is None
    assert bench.trainings("too_little_known") == 1
    for _ in range(40):
        bench.now_s += HOUR
        bench.complete(profile())
    region = bench.forecasts._regions["es"]
    region.train_at = 0.0
    seen = await bench.learned(profile())
    assert seen.forecast is not None
    assert seen.forecast.source == "heliotrope same hour yesterday"
    assert all(point.lower is None for point in seen.forecast.points)


async def test_a_plan_with_a_short_past_is_asked_for_less() -> None:
    bench = Bench([NoDataError("too far back"), NoDataError("too far back")])
    assert (await bench.learned(profile())).forecast is not None
    assert bench.asked == list(HISTORY_SPANS_S[:3])


@pytest.mark.parametrize("failure", [ThrottledError("slow down"), TimeoutError()])
async def test_what_asking_for_less_does_not_mend_is_asked_again_later(failure: Exception) -> None:
    bench = Bench([failure])
    assert (await bench.learned(profile())).forecast is None
    assert len(bench.asked) == 1
    region = bench.forecasts._regions["es"]
    region.train_at = region.history_at = 0.0
    assert (await bench.learned(profile())).forecast is not None


async def test_a_defect_in_learning_leaves_the_region_as_it_was(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(module, "train", broken)
    bench = Bench()
    seen = await bench.learned(profile())
    assert seen.forecast is None
    assert seen.intensity == bench.answer().intensity
    assert bench.trainings("error") == 1
    assert "learning to forecast es failed" in caplog.text


async def test_the_forecast_of_the_source_is_used_where_there_is_one() -> None:
    bench = Bench()
    given = of_provider(*[100.0] * 24)
    seen = await bench.learned(profile(), given)
    assert seen.forecast == given  # nobody knows yet how wrong it is
    assert (await bench.learned(profile())).forecast != given  # it has none now: ours


@pytest.mark.slow
async def test_a_source_earns_a_spread_and_an_error() -> None:
    bench = Bench()
    await bench.learned(profile())
    for hour in range(90):
        bench.now_s = NOW_S + hour * HOUR
        now = NOW + timedelta(hours=hour)
        seen = bench.complete(profile(), of_provider(*[300.0] * 24, now=now))
    assert seen.forecast is not None
    assert seen.forecast.points[5].lower == pytest.approx(200.0, abs=25.0)
    assert seen.forecast.points[5].upper == pytest.approx(400.0, abs=25.0)
    error = seen.forecast_error
    assert error is not None
    assert (error.horizon_hours, error.samples) == (24, pytest.approx(90 * 23, rel=0.2))
    assert error.mean_absolute_error == pytest.approx(64.0, abs=8.0)
    assert error.baseline_mean_absolute_error == pytest.approx(11.3, abs=2.0)


@pytest.mark.slow
async def test_our_own_forecasts_are_measured_too() -> None:
    bench = Bench()
    await bench.learned(profile())
    for hour in range(1, 40):
        bench.now_s = NOW_S + hour * HOUR
        seen = bench.complete(profile())
    error = seen.forecast_error
    assert error is not None
    assert error.baseline_mean_absolute_error is not None
    assert 5.0 < error.mean_absolute_error < error.baseline_mean_absolute_error < 14.0


@pytest.mark.slow
async def test_after_a_restart_the_status_keeps_what_it_has_until_more_is_known() -> None:
    bench = Bench()
    seen = await bench.learned(profile())
    error = ForecastError(horizon_hours=24, mean_absolute_error=9.0, baseline_mean_absolute_error=12.0, samples=500)
    status = RegionProfileStatus(
        observed_generation=1, intensity=seen.intensity, forecast=seen.forecast, forecast_error=error
    )
    bench.forecasts = bench.made()

    at_once = bench.complete(profile(status))
    assert (at_once.forecast, at_once.forecast_error) == (seen.forecast, error)

    learned = await bench.learned(profile(status))
    assert learned.forecast == seen.forecast
    for hour in range(1, 30):
        bench.now_s = NOW_S + hour * HOUR
        later = bench.complete(profile(status))
    assert later.forecast_error is not None
    assert later.forecast_error != error
    assert later.forecast_error.samples >= 7 * 24


async def test_what_is_known_of_another_grid_does_not_count() -> None:
    bench = Bench()
    seen = await bench.learned(profile())
    status = RegionProfileStatus(observed_generation=7, forecast=seen.forecast)
    changed = bench.complete(profile(status, zone="FR"))
    assert changed.forecast is None
    assert changed.forecast_error is None


@pytest.mark.parametrize(
    "source",
    [
        {"static": {"intensityGramsPerKwh": "140"}},
        {
            "file": {
                "path": "x",
                "valueColumn": "v",
                "replay": {"seriesStart": "2022-01-01T00:00:00Z", "speed": 60},
            }
        },
    ],
)
async def test_where_hours_are_no_hours_nothing_is_learned(source: dict[str, Any]) -> None:
    bench = Bench()
    given = of_provider(1.0, 2.0)
    assert bench.complete(profile(source=source), given) == bench.answer(given)
    assert not asyncio.all_tasks() - {asyncio.current_task()}


async def test_forgetting_ends_learning() -> None:
    bench = Bench()
    bench.complete(profile())
    bench.forecasts.forget("es")
    await bench.forecasts.close()
    await asyncio.sleep(0)
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("forecaster")]
    assert not bench.queued


async def test_a_forecast_of_a_source_that_contradicts_itself_is_passed_on_as_it_is() -> None:
    bench = Bench()
    point = ForecastPoint(time=NOW, value=1.0)
    given = Forecast(issued_at=NOW, source="provider", points=(point, point))
    assert bench.complete(profile(), given).forecast == given
