"""Carbon signals: published by the operator, or polled from files."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.unit.epp.datalayer.objects import region

from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope.carbon.signal import CarbonSignal, Freshness, SignalType
from heliotrope.providers import Fetched, Provider, build
from heliotrope_epp.datalayer import signals
from heliotrope_epp.datalayer.signals import PolledSignals, PublishedSignals, published_signal

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC).timestamp()
FILE = {"file": {"path": "x.csv", "valueColumn": "g"}}


def reading(value: str = "211.5", time: str = "2026-06-01T12:00:00Z", **more: Any) -> dict[str, Any]:
    kind = {"signalType": "average", "emissionFactor": "lifecycle"}
    return {"value": value, "time": time, "source": "electricityMaps"} | kind | more


def forecast(*points: tuple[str, str]) -> dict[str, Any]:
    issued = {"issuedAt": "2026-06-01T12:00:00Z", "source": "electricityMaps"}
    return issued | {"points": [{"time": f"2026-06-01T{time}:00Z", "value": value} for time, value in points]}


class TestPublished:
    def test_a_status_becomes_a_signal_that_ages(self) -> None:
        profile = region("spain", source=FILE, staleAfter="1h", status={"intensity": reading(estimated=True)})

        signal = published_signal(profile, NOON)

        assert signal.reading is not None
        assert (signal.reading.intensity_g_per_kwh, signal.reading.estimated) == (211.5, True)
        assert signal.reading.source == "electricityMaps"
        assert signal.freshness(NOON + 3600.0) is Freshness.FRESH
        assert signal.freshness(NOON + 3601.0) is Freshness.STALE
        assert signal.expected_g_per_kwh(NOON + 3601.0, 10.0) is None

    @pytest.mark.parametrize("status", [None, {}, {"freshness": "Absent"}])
    def test_without_a_value_it_is_absent(self, status: Any) -> None:
        signal = published_signal(region("spain", source=FILE, status=status), NOON)

        assert signal.freshness(NOON) is Freshness.ABSENT

    def test_zero_is_a_value(self) -> None:
        signal = published_signal(region("spain", source=FILE, status={"intensity": reading("0")}), NOON)

        assert signal.expected_g_per_kwh(NOON, 1.0) == 0.0

    def test_the_forecast_follows_the_current_value(self) -> None:
        past = ("11:00", "999"), ("12:00", "999")  # what was forecast for times that are over does not count
        status = {"intensity": reading(), "forecast": forecast(*past, ("13:00", "100"), ("14:00", "50"))}

        signal = published_signal(region("spain", source=FILE, status=status), NOON)

        assert signal.expected_g_per_kwh(NOON + 1800.0, 0.0) == 211.5
        assert signal.expected_g_per_kwh(NOON + 1800.0, 3600.0) == (211.5 + 100.0) / 2
        assert signal.expected_g_per_kwh(NOON + 7200.0, 3600.0) == 50.0
        assert signal.forecast is not None
        assert signal.forecast.average(NOON, NOON + 3 * 3600.0 + 1.0) is None  # not beyond its end

    def test_a_forecast_that_contradicts_itself_is_left_out(self) -> None:
        status = {"intensity": reading(), "forecast": forecast(("13:00", "100"), ("13:00", "50"))}

        signal = published_signal(region("spain", source=FILE, status=status), NOON)

        assert signal.forecast is None
        assert signal.expected_g_per_kwh(NOON, 0.0) == 211.5

    def test_a_value_of_another_kind_than_the_spec_asks_for_is_not_used(self) -> None:
        status = {"intensity": reading()}
        marginal = {"type": "marginal", "emissionFactor": "lifecycle"}

        signal = published_signal(region("spain", source=FILE, signal=marginal, status=status), NOON)

        assert signal.freshness(NOON) is Freshness.ABSENT

    def test_a_static_source_needs_no_operator_and_stays_fresh(self) -> None:
        seen: list[Mapping[str, CarbonSignal]] = []
        book = PublishedSignals(seen.append, clock=lambda: NOON)

        book.update([region("spain")])

        signal = seen[-1]["spain"]
        assert signal.expected_g_per_kwh(NOON, 1.0) == 120.0
        assert signal.freshness(NOON + 1e9) is Freshness.FRESH

    def test_a_replay_goes_stale_in_the_time_of_its_series(self) -> None:
        replay = {"path": "x.csv", "valueColumn": "g", "replay": {"seriesStart": "2022-01-01T00:00:00Z", "speed": 360}}
        profile = region("spain", source={"file": replay}, staleAfter="2h", status={"intensity": reading()})

        assert published_signal(profile, NOON).stale_after_s == 20.0


class Book:
    def __init__(self, folder: Path) -> None:
        self.now = NOON
        self.signals: Mapping[str, CarbonSignal] = {}
        self.polled = PolledSignals(self._take, folder=folder, clock=lambda: self.now)

    def _take(self, signals: Mapping[str, CarbonSignal]) -> None:
        self.signals = signals

    def freshness(self, name: str) -> Freshness:
        return self.signals[name].freshness(self.now)

    def value(self, name: str) -> float | None:
        held = self.signals[name].reading
        return None if held is None else held.intensity_g_per_kwh

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.01)


@pytest.fixture
async def book(tmp_path: Path) -> AsyncIterator[Book]:
    with contextlib.closing(_Rows(tmp_path / "x.csv")) as rows:
        rows.write(100, 200, 300)
    book = Book(tmp_path)
    yield book
    await book.polled.close()


class _Rows:
    """Hourly rows from noon on."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, *values: float) -> None:
        rows = (f"2026-06-01T{12 + hour}:00:00Z,{value}" for hour, value in enumerate(values))
        self._path.write_text("datetime_utc,g\n" + "\n".join(rows))

    def close(self) -> None: ...


def polled(name: str, **spec: Any) -> Any:
    return region(name, source=FILE, **({"pollInterval": "1s", "staleAfter": "1h"} | spec))


class TestPolled:
    async def test_values_and_forecasts_follow_the_clock(self, book: Book) -> None:
        book.polled.update([polled("spain"), region("static")])
        assert book.freshness("spain") is Freshness.ABSENT  # nobody waited

        await book.until(lambda: book.value("spain") == 100.0 and book.value("static") == 120.0)
        signal = book.signals["spain"]
        assert signal.expected_g_per_kwh(NOON, 7200.0) == 150.0
        assert signal.reading is not None
        assert signal.reading.signal_type is SignalType.AVERAGE

        book.now = NOON + 3700.0
        await book.until(lambda: book.value("spain") == 200.0)

    @pytest.mark.slow
    async def test_the_last_value_stays_until_it_is_stale_when_the_source_fails(
        self, book: Book, tmp_path: Path
    ) -> None:
        book.polled.update([polled("spain")])
        await book.until(lambda: book.value("spain") == 100.0)

        (tmp_path / "x.csv").write_text("garbage")
        await book.until(lambda: "spain" in book.polled.problems)
        assert "has no column" in book.polled.problems["spain"]
        assert (book.value("spain"), book.freshness("spain")) == (100.0, Freshness.FRESH)
        book.now = NOON + 3601.0
        assert (book.value("spain"), book.freshness("spain")) == (100.0, Freshness.STALE)

        _Rows(tmp_path / "x.csv").write(1, 2, 3)
        await book.until(lambda: book.value("spain") == 2.0)
        assert book.polled.problems == {}
        assert book.freshness("spain") is Freshness.FRESH

    async def test_a_source_that_hangs_delays_no_other(self, book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
        class Hanging:
            async def fetch(self, now_unix_s: float) -> Fetched:
                await asyncio.sleep(3600.0)
                raise AssertionError

        def hanging_or_real(profile: RegionProfile, **arguments: Any) -> Provider:
            return Hanging() if profile.metadata.name == "stuck" else build(profile, **arguments)

        monkeypatch.setattr(signals, "build", hanging_or_real)
        monkeypatch.setattr(signals, "_FETCH_TIMEOUT_S", 0.2)

        book.polled.update([polled("stuck"), polled("spain")])

        await book.until(lambda: book.value("spain") == 100.0)
        await book.until(lambda: "no answer within" in book.polled.problems.get("stuck", ""))
        assert book.freshness("stuck") is Freshness.ABSENT

    async def test_unsupported_sources_are_a_problem_of_their_region_alone(self, book: Book) -> None:
        other = region("british", source={"neso": {}}, signal={"type": "average", "emissionFactor": "direct"})

        book.polled.update([other, polled("spain")])

        await book.until(lambda: book.value("spain") == 100.0)
        assert book.freshness("british") is Freshness.ABSENT
        assert book.polled.problems["british"].startswith("spec.source.neso: cannot be read here")

    async def test_regions_come_go_and_change(self, book: Book, tmp_path: Path) -> None:
        book.polled.update([polled("spain")])
        await book.until(lambda: book.value("spain") == 100.0)

        book.polled.update([polled("spain", pue="1.9")])  # has nothing to do with the signal
        assert book.value("spain") == 100.0

        book.polled.update([polled("spain", signal={"type": "marginal", "emissionFactor": "direct"})])
        assert book.freshness("spain") is Freshness.ABSENT  # an average value says nothing of marginal intensity
        await book.until(lambda: book.value("spain") == 100.0)
        held = book.signals["spain"].reading
        assert held is not None
        assert held.signal_type is SignalType.MARGINAL

        book.polled.update([])
        assert book.signals == {}

    async def test_a_static_value_never_goes_stale_while_it_is_polled(self, book: Book) -> None:
        book.polled.update([region("static", pollInterval="1s", staleAfter="1s")])
        await book.until(lambda: book.value("static") == 120.0)

        book.now += 5.0
        await book.until(lambda: book.freshness("static") is Freshness.FRESH)
        age = book.signals["static"].age_s(book.now)
        assert age is not None
        assert math.isclose(age, 0.0)
