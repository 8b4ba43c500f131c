"""Providers on real files: time, replay, forecasts, curtailment and failures."""

# ruff: noqa: ASYNC240 - nothing else runs while these tests write their files

import asyncio
import os
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.resource_documents import SOURCES

from heliotrope.api.documents import parse
from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope.carbon.series import Point, Series
from heliotrope.carbon.signal import EmissionFactor, SignalType
from heliotrope.errors import InvalidInputError, SignalUnavailableError
from heliotrope.providers import HistoryProvider, build, timing
from heliotrope.providers.curtailment import with_curtailment_credit
from heliotrope.providers.file import FileProvider
from heliotrope.providers.recorded import FORECAST_POINTS

DATA = Path(__file__).parents[4] / "data" / "carbon"
START = 1_000_000.0


def profile(source: dict[str, Any], **spec: Any) -> RegionProfile:
    resource = parse(
        {
            "apiVersion": "heliotrope.io/v1alpha1",
            "kind": "RegionProfile",
            "metadata": {"name": "spain"},
            "spec": {"zone": "ES", "source": source} | spec,
        }
    )
    assert isinstance(resource, RegionProfile)
    return resource


def file(path: Path | str, **source: Any) -> dict[str, Any]:
    return {"file": {"path": str(path), "valueColumn": "g"} | source}


def unix(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "x.csv"
    path.write_text("datetime_utc,g\n2022-01-01T00:00:00Z,100\n2022-01-01T01:00:00Z,200\n2022-01-01T02:00:00Z,300\n")
    return path


async def test_static_is_always_of_now() -> None:
    provider = build(profile({"static": {"intensityGramsPerKwh": "0"}}), started_unix_s=0.0)

    fetched = await provider.fetch(START)

    assert (fetched.reading.intensity_g_per_kwh, fetched.reading.measured_unix_s) == (0.0, START)
    assert (fetched.reading.source, fetched.reading.signal_type) == ("static", SignalType.AVERAGE)
    assert (fetched.forecast, fetched.forecast_source) == (None, None)


async def test_a_file_tells_of_its_past(path: Path) -> None:
    provider = build(profile(file(path)), started_unix_s=0.0)
    assert isinstance(provider, HistoryProvider)
    assert not isinstance(
        build(profile({"static": {"intensityGramsPerKwh": "0"}}), started_unix_s=0.0), HistoryProvider
    )

    past = await provider.history(unix("2021-06-01T00:00:00"), unix("2022-01-01T02:00:00"))

    assert past.values_g_per_kwh == (100.0, 200.0)  # what begins at the end is not past
    with pytest.raises(SignalUnavailableError, match="spans 2022-01-01T00:00:00Z to 2022-01-01T03:00:00Z"):
        await provider.history(unix("2022-01-01T02:00:01"), unix("2022-01-02T00:00:00"))


async def test_a_file_may_be_json(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"data": [{"t": "2022-01-01T01:00:00Z", "g": 0}, {"t": "2022-01-01T02:00:00Z", "g": 7.5}]}')
    source = {"file": {"path": str(path), "timeColumn": "t", "valueColumn": "g"}}
    provider = build(profile(source), started_unix_s=0.0)

    fetched = await provider.fetch(unix("2022-01-01T01:30:00"))

    assert fetched.reading.intensity_g_per_kwh == 0.0
    assert fetched.forecast is not None
    assert fetched.forecast.values_g_per_kwh == (0.0, 7.5)


async def test_a_file_gives_the_row_of_now_and_those_ahead(path: Path) -> None:
    marginal = {"type": "marginal", "emissionFactor": "direct"}
    provider = build(profile(file(path), signal=marginal), started_unix_s=0.0)

    fetched = await provider.fetch(unix("2022-01-01T01:30:00"))

    reading = fetched.reading
    assert (reading.intensity_g_per_kwh, reading.measured_unix_s) == (200.0, unix("2022-01-01T01:00:00"))
    assert (reading.signal_type, reading.emission_factor) == (SignalType.MARGINAL, EmissionFactor.DIRECT)
    assert (reading.source, reading.estimated, fetched.forecast_source) == ("file", None, "file")
    assert fetched.forecast is not None
    assert fetched.forecast.average(unix("2022-01-01T01:30:00"), unix("2022-01-01T02:30:00")) == 250.0


async def test_the_last_row_has_nothing_ahead_and_then_the_series_is_over(path: Path) -> None:
    provider = build(profile(file(path)), started_unix_s=0.0)

    fetched = await provider.fetch(unix("2022-01-01T02:59:59"))

    assert (fetched.reading.intensity_g_per_kwh, fetched.forecast) == (300.0, None)
    for time in ("2021-12-31T23:59:59", "2022-01-01T03:00:00"):
        with pytest.raises(SignalUnavailableError, match="spans 2022-01-01T00:00:00Z to 2022-01-01T03:00:00Z"):
            await provider.fetch(unix(time))


@pytest.mark.parametrize(
    ("replay", "started", "now"),
    [
        ({"seriesStart": "2022-01-01T01:00:00Z", "speed": 360}, START, START + 5.0),
        ({"seriesStart": "2022-01-01T01:00:00Z"}, START, START + 1800.0),
        (
            {"seriesStart": "2022-01-01T00:30:00Z", "wallStart": "2026-06-01T00:00:00Z", "speed": 60},
            START,
            unix("2026-06-01T00:01:00"),
        ),
    ],
)
async def test_replays_show_half_past_one(path: Path, replay: dict[str, Any], started: float, now: float) -> None:
    provider = build(profile(file(path, replay=replay)), started_unix_s=started)
    speed = replay.get("speed", 1)

    fetched = await provider.fetch(now)

    assert fetched.reading.intensity_g_per_kwh == 200.0
    assert fetched.reading.measured_unix_s == pytest.approx(now - 1800.0 / speed)  # on the real clock
    assert fetched.reading.source == "file replay"
    assert fetched.forecast_source == "file replay (perfect foresight)"
    assert fetched.forecast is not None
    assert fetched.forecast.average(now, now + 3600.0 / speed) == pytest.approx(250.0)


async def test_a_shipped_year_replayed_fast() -> None:
    source = {
        "path": "ES.csv",
        "valueColumn": "ci_lifecycle",
        "estimatedColumn": "estimated",
        "replay": {"seriesStart": "2022-06-01T00:00:00Z", "speed": 720},
    }
    provider = build(profile({"file": source}), folder=DATA, started_unix_s=START)

    noon = await provider.fetch(START + 12 * 3600.0 / 720.0 + 1.0)

    assert noon.reading.intensity_g_per_kwh == 173.95
    assert noon.reading.estimated is False
    assert noon.forecast is not None
    assert len(noon.forecast.times_unix_s) == FORECAST_POINTS


def test_a_faster_series_is_polled_and_ages_in_its_own_time() -> None:
    replay = {"seriesStart": "2022-01-01T00:00:00Z", "speed": 600}
    spec = {"pollInterval": "10m", "staleAfter": "2h"}

    plain = timing(profile(file("x.csv"), **spec).spec)
    fast = timing(profile(file("x.csv", replay=replay), **spec).spec)
    fastest = timing(profile(file("x.csv", replay=replay | {"speed": 1_000_000}), **spec).spec)

    assert (plain.poll_s, plain.stale_after_s) == (600.0, 7200.0)
    assert (fast.poll_s, fast.stale_after_s) == (1.0, 12.0)
    assert fastest.poll_s == 0.1


async def test_a_changed_file_is_read_again_and_an_unchanged_one_is_not(path: Path) -> None:
    provider = build(profile(file(path)), started_unix_s=0.0)
    now = unix("2022-01-01T00:30:00")
    assert (await provider.fetch(now)).reading.intensity_g_per_kwh == 100.0

    text, status = path.read_text(), path.stat()
    path.write_text(text.replace(",100", ",111"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # the same file, time and size
    assert (await provider.fetch(now)).reading.intensity_g_per_kwh == 100.0

    replacement = path.with_suffix(".new")
    replacement.write_text(text.replace(",100", ",122"))
    os.utime(replacement, ns=(status.st_atime_ns, status.st_mtime_ns))
    replacement.replace(path)
    assert (await provider.fetch(now)).reading.intensity_g_per_kwh == 122.0


async def test_failures_name_the_file_and_pass(path: Path) -> None:
    provider = build(profile(file(path)), started_unix_s=0.0)
    text = path.read_text()
    path.unlink()
    with pytest.raises(SignalUnavailableError, match=r"x\.csv: No such file"):
        await provider.fetch(unix("2022-01-01T00:30:00"))

    os.mkfifo(path)
    with pytest.raises(SignalUnavailableError, match=r"x\.csv: is not a file"):
        await provider.fetch(unix("2022-01-01T00:30:00"))
    path.unlink()

    path.write_text(text.replace("300", "x"))
    with pytest.raises(SignalUnavailableError, match=r"x\.csv: row 4: 'x' is not a number"):
        await provider.fetch(unix("2022-01-01T00:30:00"))

    path.write_text(text)
    assert (await provider.fetch(unix("2022-01-01T00:30:00"))).reading.intensity_g_per_kwh == 100.0


async def test_a_file_system_that_hangs_takes_one_thread(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release, real = threading.Event(), FileProvider._current
    monkeypatch.setattr(FileProvider, "_current", lambda self: (release.wait(10), real(self))[1])
    provider = build(profile(file(path)), started_unix_s=0.0)
    now = unix("2022-01-01T00:30:00")

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(provider.fetch(now), 0.05)
    for _ in range(100):
        with pytest.raises(SignalUnavailableError, match="still being read"):
            await provider.fetch(now)
    release.set()
    async with asyncio.timeout(5):
        while True:
            try:
                assert (await provider.fetch(now)).reading.intensity_g_per_kwh == 100.0
                break
            except SignalUnavailableError:
                await asyncio.sleep(0.01)


def series(*values: float) -> Series:
    return Series.from_points([Point(float(hour), value) for hour, value in enumerate(values)])


@pytest.mark.parametrize(
    ("alpha", "expected"),
    [
        (0.0, (0.0, 10.0, 30.0, 0.0, 50.0)),
        (0.5, (15.0, 10.0, 30.0, 15.0, 50.0)),
        (1.0, (30.0, 10.0, 30.0, 30.0, 50.0)),
    ],
)
def test_curtailed_power_counts_as_a_share_of_the_median(alpha: float, expected: tuple[float, ...]) -> None:
    assert with_curtailment_credit(series(0, 10, 30, 0, 50), alpha).values_g_per_kwh == expected


def test_curtailment_needs_a_value_to_take_a_share_of() -> None:
    assert with_curtailment_credit(series(0, 0), 0.0).values_g_per_kwh == (0.0, 0.0)
    with pytest.raises(InvalidInputError, match="curtailmentCredit"):
        with_curtailment_credit(series(0, 0), 0.5)


@pytest.mark.parametrize(("kind", "expected"), [("marginal", 125.0), ("average", 0.0)])
async def test_the_credit_is_for_marginal_signals_alone(path: Path, kind: str, expected: float) -> None:
    path.write_text(path.read_text().replace(",100", ",0"))
    signal = {"type": kind, "emissionFactor": "direct"}
    provider = build(profile(file(path), signal=signal, curtailmentCredit="0.5"), started_unix_s=0.0)

    assert (await provider.fetch(unix("2022-01-01T00:30:00"))).reading.intensity_g_per_kwh == expected


def test_a_static_marginal_zero_has_nothing_to_take_a_share_of() -> None:
    zero = {"static": {"intensityGramsPerKwh": "0"}}
    signal = {"type": "marginal", "emissionFactor": "direct"}

    with pytest.raises(InvalidInputError, match=r"spec\.curtailmentCredit"):
        build(profile(zero, signal=signal, curtailmentCredit="0.5"), started_unix_s=0.0)
    build(profile(zero, signal=signal), started_unix_s=0.0)


def test_a_relative_path_needs_a_folder() -> None:
    with pytest.raises(InvalidInputError, match=r"spec\.source\.file\.path: 'x\.csv' is relative"):
        build(profile(file("x.csv")), started_unix_s=0.0)


@pytest.mark.parametrize("name", sorted(SOURCES.keys() - {"static", "file"}))
def test_sources_that_need_the_network_or_the_cluster_are_named(name: str) -> None:
    kinds = {
        "wattTime": {"type": "marginal", "emissionFactor": "direct"},
        "neso": {"type": "average", "emissionFactor": "direct"},
    }
    with pytest.raises(InvalidInputError, match=rf"spec\.source\.{name}: cannot be read here"):
        build(profile({name: SOURCES[name]}, signal=kinds.get(name, {})), started_unix_s=0.0)
