"""Carbon sources: polled at their interval, retried with back-off, kept while they fail, started anew when changed."""

import asyncio
import base64
import gzip
import random
from pathlib import Path
from typing import Any

import pytest
from tests.unit.operator import objects
from tests.unit.operator.memory import UNAVAILABLE, MemoryApi, MemoryKube, metrics
from tests.unit.operator.objects import NOW_S

from heliotrope_operator.errors import ForbiddenError
from heliotrope_operator.signals import MAX_POINTS, Signals

CSV = "datetime_utc,g\n2026-03-01 11:00:00,100\n2026-03-01 12:00:00,200\n2026-03-01 13:00:00,300\n"
CONFIG_MAP = "/api/v1/namespaces/operator/configmaps/carbon"


class Bench:
    def __init__(self, folder: Path | None = None) -> None:
        self.api = MemoryApi()
        self.kube = MemoryKube(self.api)
        self.metrics = metrics()
        self.now_s = NOW_S
        self.signals = Signals(
            self.kube,  # type: ignore[arg-type]
            self.metrics,
            namespace="operator",
            folder=folder,
            unix_clock=lambda: self.now_s,
            rng=random.Random(1),
        )

    def polls(self, outcome: str) -> float:
        labels = {"region": "es", "outcome": outcome}
        return self.metrics.registry.get_sample_value("heliotrope_carbon_polls_total", labels) or 0.0


def config_map(key: str = "es.csv", **source: Any) -> dict[str, Any]:
    return {"configMap": {"name": "carbon", "key": key, "valueColumn": "g"} | source}


async def test_a_file_gives_the_value_of_now_and_the_hours_ahead(tmp_path: Path) -> None:
    (tmp_path / "es.csv").write_text(CSV)
    bench = Bench(tmp_path)
    profile = objects.read_region(source={"file": {"path": "es.csv", "valueColumn": "g"}})

    seen = await bench.signals.observe(profile)

    assert seen.published is not None
    assert (seen.published.intensity.value, seen.published.intensity.source) == (200.0, "file")
    assert seen.published.forecast is not None
    assert [point.value for point in seen.published.forecast.points] == [200.0, 300.0]
    assert seen.next_poll_s == pytest.approx(285, abs=16)
    assert (seen.failure, seen.unsupported, seen.invalid) == (None, None, None)


async def test_a_long_series_gives_no_more_points_than_a_status_holds(tmp_path: Path) -> None:
    rows = [f"2026-03-{1 + hour // 24:02d} {hour % 24:02d}:00:00,{hour}" for hour in range(12, 500)]
    (tmp_path / "es.csv").write_text("\n".join(["datetime_utc,g", *rows]))
    bench = Bench(tmp_path)

    seen = await bench.signals.observe(objects.read_region(source={"file": {"path": "es.csv", "valueColumn": "g"}}))

    assert seen.published is not None
    assert seen.published.forecast is not None
    assert len(seen.published.forecast.points) == MAX_POINTS


@pytest.mark.parametrize(
    ("key", "data"),
    [
        ("es.csv", {"data": {"es.csv": CSV}}),
        ("es.csv.gz", {"binaryData": {"es.csv.gz": base64.b64encode(gzip.compress(CSV.encode())).decode()}}),
    ],
)
async def test_a_config_map_is_read_plain_or_compressed(key: str, data: dict[str, Any]) -> None:
    bench = Bench()
    bench.api.put(CONFIG_MAP, data)

    seen = await bench.signals.observe(objects.read_region(source=config_map(key)))

    assert seen.published is not None
    assert (seen.published.intensity.value, seen.published.intensity.source) == (200.0, "configMap")
    assert seen.published.forecast is not None
    assert seen.published.forecast.source == "configMap"


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (None, "ConfigMap operator/carbon does not exist"),
        ({"data": {"other.csv": CSV}}, "ConfigMap operator/carbon, key es.csv: does not exist"),
        ({"data": {"es.csv": "datetime_utc,x\n"}}, "key es.csv: has no column 'g'"),
        ({"binaryData": {"es.csv": "%%%"}}, "is not base64"),
        ({"data": {"es.csv": CSV.replace("200", "200000")}}, "check its unit"),
        ({"data": {"es.csv": CSV.replace("2026", "2020")}}, "the series has no value now"),
    ],
)
async def test_a_config_map_that_is_of_no_use_says_why(document: dict[str, Any] | None, words: str) -> None:
    bench = Bench()
    if document is not None:
        bench.api.put(CONFIG_MAP, document)

    seen = await bench.signals.observe(objects.read_region(source=config_map()))

    assert seen.published is None
    assert words in (seen.failure or "")


async def test_a_config_map_that_may_not_be_read_says_what_to_allow() -> None:
    bench = Bench()
    path = "/api/v1/namespaces/team/configmaps/carbon"
    bench.kube.denied[path] = ForbiddenError("no")

    seen = await bench.signals.observe(objects.read_region(source=config_map(namespace="team")))

    assert "ConfigMap team/carbon: the operator may not read it; allow its service account" in (seen.failure or "")


async def test_a_config_map_that_changes_is_parsed_anew() -> None:
    bench = Bench()
    profile = objects.read_region(source=config_map(), pollInterval="1s")
    values = []
    for pause, text in ((0.0, CSV), (1.05, CSV.replace("200", "250"))):
        await asyncio.sleep(pause)
        bench.api.put(CONFIG_MAP, {"data": {"es.csv": text}})
        seen = await bench.signals.observe(profile)
        assert seen.published is not None
        values.append(seen.published.intensity.value)

    assert values == [200.0, 250.0]


async def test_a_source_of_a_later_version_is_named() -> None:
    seen = await Bench().signals.observe(objects.read_region(source={"energyCharts": {"country": "es"}}))

    assert (seen.unsupported, seen.next_poll_s) == ("energyCharts", None)


async def test_a_source_that_cannot_work_is_said_and_not_asked() -> None:
    bench = Bench()

    seen = await bench.signals.observe(objects.read_region(source={"file": {"path": "es.csv", "valueColumn": "g"}}))

    assert "spec.source.file.path" in (seen.invalid or "")
    assert seen.next_poll_s is None
    assert bench.polls("error") == 0


@pytest.mark.looptime
async def test_a_source_is_asked_when_due_and_not_before() -> None:
    bench = Bench()
    profile = objects.read_region(pollInterval="10m")
    first = await bench.signals.observe(profile)
    for _ in range(5):
        await bench.signals.observe(profile)
    assert bench.polls("success") == 1
    assert first.next_poll_s is not None
    assert 540 <= first.next_poll_s <= 600

    await asyncio.sleep(first.next_poll_s)
    await bench.signals.observe(profile)
    assert bench.polls("success") == 2


@pytest.mark.looptime
async def test_a_shorter_interval_holds_at_once() -> None:
    bench = Bench()
    await bench.signals.observe(objects.read_region(pollInterval="2h"))
    await asyncio.sleep(120)

    await bench.signals.observe(objects.read_region(pollInterval="1m"))

    assert bench.polls("success") == 2


@pytest.mark.looptime
async def test_a_source_that_fails_is_asked_again_later_and_later_but_not_less_than_once_a_minute() -> None:
    bench = Bench()
    bench.kube.failure = UNAVAILABLE
    profile = objects.read_region(source=config_map(), pollInterval="5s")
    pauses = []
    for _ in range(10):
        seen = await bench.signals.observe(profile)
        assert "no answer" in (seen.failure or "")
        assert seen.next_poll_s is not None
        pauses.append(seen.next_poll_s)
        await asyncio.sleep(seen.next_poll_s)

    ceilings = (1, 2, 4, 8, 16, 32, 60, 60, 60, 60)
    assert all(ceiling / 2 <= pause <= ceiling for pause, ceiling in zip(pauses, ceilings, strict=True))
    assert bench.polls("error") == 10


@pytest.mark.looptime
async def test_a_changed_source_starts_without_the_old_value_and_a_changed_price_does_not() -> None:
    bench = Bench()
    await bench.signals.observe(objects.read_region())
    priced = await bench.signals.observe(objects.read_region(electricityPricePerKwh="0.2"))
    assert priced.published is not None

    bench.kube.failure = UNAVAILABLE
    changed = await bench.signals.observe(objects.read_region(source=config_map()))

    assert changed.published is None


@pytest.mark.looptime
async def test_a_region_that_is_gone_leaves_nothing() -> None:
    bench = Bench()
    await bench.signals.observe(objects.read_region())

    bench.signals.forget("es")
    bench.signals.forget("es")

    assert bench.signals._sources == {}
    assert bench.polls("success") == 0
