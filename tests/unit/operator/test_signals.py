"""Carbon sources: polled at their interval, retried with back-off, kept while they fail, started anew when changed."""

import asyncio
import base64
import gzip
import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.operator import objects
from tests.unit.operator.memory import UNAVAILABLE, MemoryApi, MemoryKube, metrics
from tests.unit.operator.objects import NOW_S

from heliotrope.api.v1alpha1.common import SecretKeyRef
from heliotrope.api.v1alpha1.regionprofile import Freshness
from heliotrope.carbon.signal import EmissionFactor, Reading, SignalType
from heliotrope.errors import (
    BadAnswerError,
    CredentialsMissingError,
    CredentialsRefusedError,
    NoDataError,
    SignalUnavailableError,
    ThrottledError,
)
from heliotrope.providers import Fetched
from heliotrope_operator.conditions import transitions
from heliotrope_operator.controllers.regions import region_status
from heliotrope_operator.errors import ForbiddenError
from heliotrope_operator.kinds.regions import region_key
from heliotrope_operator.resources import Key
from heliotrope_operator.secrets import OwnSecrets
from heliotrope_operator.signals import FETCH_TIMEOUT_S, MAX_POINTS, PATIENCE_S, Signals

CSV = "datetime_utc,g\n2026-03-01 11:00:00,100\n2026-03-01 12:00:00,200\n2026-03-01 13:00:00,300\n"
CONFIG_MAP = "/api/v1/namespaces/operator/configmaps/carbon"


class Bench:
    def __init__(self, folder: Path | None = None, enqueue: Callable[[Iterable[Key]], None] = lambda _: None) -> None:
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
            enqueue=enqueue,
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
    assert (seen.failure, seen.invalid, seen.needs_credentials) == (None, None, False)


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


async def test_the_config_map_of_azures_exporter_is_read() -> None:
    """Of kubernetes-carbon-intensity-exporter: a JSON list, encoded, under the key `data`."""
    bench = Bench()
    rows = [
        {"timestamp": f"2026-03-01T{hour:02d}:00:00+00:00", "duration": 5, "value": value, "location": "eastus"}
        for hour, value in ((11, 100.5), (12, 0), (13, 300.25))
    ]
    bench.api.put(CONFIG_MAP, {"binaryData": {"data": base64.b64encode(json.dumps(rows).encode()).decode()}})
    source = {"name": "carbon", "key": "data", "timeColumn": "timestamp", "valueColumn": "value"}

    seen = await bench.signals.observe(objects.read_region(source={"configMap": source}))

    assert seen.published is not None
    assert seen.published.intensity.value == 0.0
    assert seen.published.forecast is not None
    assert [point.value for point in seen.published.forecast.points] == [0.0, 300.25]


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


@pytest.mark.looptime
async def test_an_outage_of_a_day_is_waited_out_and_told_once() -> None:
    """Fresh, then failing, then stale, and back: with no more questions than the interval allows, and four events."""
    bench = Bench()
    hours = "".join(f"2026-03-{1 + hour // 24:02d} {hour % 24:02d}:00:00,{100 + hour}\n" for hour in range(72))
    bench.api.put(CONFIG_MAP, {"data": {"es.csv": f"datetime_utc,g\n{hours}"}})
    document, told, freshness = None, [], []
    loop, asked = asyncio.get_running_loop(), len(bench.api.requests)
    begun = loop.time()

    async def reconciled_until(moment_s: float) -> None:
        nonlocal document
        while loop.time() - begun < moment_s:
            bench.now_s = NOW_S + loop.time() - begun
            profile = objects.read_region(status=document, source=config_map(), staleAfter="2h", pollInterval="5m")
            seen = await bench.signals.observe(profile)
            status = region_status(profile, seen, bench.now_s)
            before = () if profile.status is None else profile.status.conditions
            told.extend(each.reason for each in transitions(before, status.conditions))
            if not freshness or freshness[-1] != status.freshness:
                freshness.append(status.freshness)
            document = status.model_dump(by_alias=True, exclude_none=True, mode="json")
            await asyncio.sleep(min(seen.next_poll_s or 60.0, 600.0) + 0.01)

    await reconciled_until(3_600.0)
    bench.kube.failure = UNAVAILABLE
    await reconciled_until(25 * 3_600.0)
    bench.kube.failure = None
    await reconciled_until(26 * 3_600.0)

    assert freshness == [Freshness.FRESH, Freshness.STALE, Freshness.FRESH]
    assert told == ["SourceFailing", "SignalStale", "SignalFresh"]
    assert document is not None
    assert document["intensity"]["time"] > "2026-03-02T13"
    assert len(bench.api.requests) - asked <= 26 * 3_600 / 150


class Slow:
    """A source that answers when it is told to."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.asked = 0
        self.cancelled = 0
        self.error: Exception | None = None

    async def fetch(self, now_unix_s: float) -> Fetched:
        self.asked += 1
        try:
            await self.answers.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error is not None:
            raise self.error
        reading = Reading(42.0, now_unix_s, "slow", SignalType.AVERAGE, EmissionFactor.LIFECYCLE)
        return Fetched(reading, forecast_failure="no plan")


def slow_bench(monkeypatch: pytest.MonkeyPatch) -> tuple[Bench, Slow, list[Key]]:
    queued: list[Key] = []
    bench, slow = Bench(enqueue=queued.extend), Slow()
    monkeypatch.setattr("heliotrope_operator.signals.build", lambda *_, **__: slow)
    return bench, slow, queued


@pytest.mark.looptime
async def test_a_slow_source_is_not_waited_for_and_its_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, slow, queued = slow_bench(monkeypatch)
    profile, begun = objects.read_region(), asyncio.get_running_loop().time()

    seen = await bench.signals.observe(profile)

    assert asyncio.get_running_loop().time() - begun == pytest.approx(PATIENCE_S)
    assert (seen.pending, seen.published, seen.failure, queued) == (True, None, None, [])
    await bench.signals.observe(profile)
    assert slow.asked == 1
    slow.answers.set()
    await asyncio.sleep(0.1)
    assert queued == [region_key("es")]
    seen = await bench.signals.observe(profile)
    assert (seen.pending, slow.asked) == (False, 1)
    assert seen.published is not None
    assert (seen.published.intensity.value, seen.published.forecast_failure) == (42.0, "no plan")


@pytest.mark.looptime
async def test_a_source_that_hangs_is_given_up_and_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, slow, queued = slow_bench(monkeypatch)
    await bench.signals.observe(objects.read_region())

    await asyncio.sleep(FETCH_TIMEOUT_S)

    assert queued == [region_key("es")]
    seen = await bench.signals.observe(objects.read_region())
    assert seen.failure == "no answer within 30 s"
    assert bench.polls("timeout") == 1
    await asyncio.sleep(seen.next_poll_s or 0.0)
    await bench.signals.observe(objects.read_region())
    assert slow.asked == 2


@pytest.mark.looptime
async def test_what_is_asked_ends_with_its_region_its_source_and_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, slow, queued = slow_bench(monkeypatch)
    await bench.signals.observe(objects.read_region())
    await bench.signals.observe(objects.read_region(zone="FR"))
    bench.signals.forget("es")
    await bench.signals.observe(objects.read_region())
    await asyncio.sleep(0)
    assert (slow.asked, slow.cancelled) == (3, 2)

    await bench.signals.close()

    assert (slow.cancelled, queued) == (3, [])


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("error", "outcome", "at_least_s", "at_most_s"),
    [
        (ThrottledError("too often", 450.0), "throttled", 450.0, 450.0),
        (ThrottledError("too often"), "throttled", 0.5, 1.0),
        (CredentialsMissingError("no key"), "credentials_missing", 0.5, 1.0),
        (CredentialsRefusedError("bad key"), "credentials_refused", 0.5, 1.0),
        (NoDataError("nothing"), "no_data", 0.5, 1.0),
        (BadAnswerError("nonsense"), "bad_answer", 0.5, 1.0),
        (RuntimeError("s3cr3t"), "error", 0.5, 1.0),
    ],
)
async def test_each_failure_is_counted_by_its_name_and_waits_as_it_should(
    error: Exception,
    outcome: str,
    at_least_s: float,
    at_most_s: float,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench, slow, _ = slow_bench(monkeypatch)
    slow.error = error
    slow.answers.set()

    seen = await bench.signals.observe(objects.read_region())

    assert bench.polls(outcome) == 1
    assert seen.next_poll_s is not None
    assert at_least_s <= seen.next_poll_s <= at_most_s
    assert "s3cr3t" not in f"{seen.failure} {caplog.text}"
    if outcome.startswith("credentials"):
        assert seen.credentials is not None
        assert seen.credentials.value == outcome


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("error", "longest_s"), [(CredentialsMissingError("x"), 30.0), (CredentialsRefusedError("x"), 60.0)]
)
async def test_a_key_is_looked_at_again_within_a_minute_whatever_the_interval(
    error: Exception, longest_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, slow, _ = slow_bench(monkeypatch)
    slow.error = error
    slow.answers.set()
    profile = objects.read_region(pollInterval="6h", staleAfter="12h")
    for _ in range(12):
        seen = await bench.signals.observe(profile)
        assert seen.next_poll_s is not None
        assert seen.next_poll_s <= longest_s
        await asyncio.sleep(seen.next_poll_s)


async def test_secrets_are_read_from_the_own_namespace_alone() -> None:
    bench = Bench()
    bench.api.put("/api/v1/namespaces/operator/secrets/em", {"data": {"token": base64.b64encode(b"key\n").decode()}})
    secrets = OwnSecrets(bench.kube, "operator")  # type: ignore[arg-type]

    assert (await secrets.read(SecretKeyRef(name="em", key="token"))).reveal() == "key"

    assert [path for _, path in bench.api.requests] == ["/api/v1/namespaces/operator/secrets/em"]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (None, "Secret operator/em does not exist; create it: kubectl create secret generic em --namespace operator"),
        ({}, "key token, does not exist; the Secret has no keys"),
        ({"data": None}, "key token, does not exist; the Secret has no keys"),
        ({"data": {"b": "eA==", "a": "eA=="}}, "key token, does not exist; the Secret has a, b"),
        ({"data": {"token": "%%%"}}, "key token, is not base64"),
        ({"data": {"token": ""}}, "key token, is empty"),
        ({"data": {"token": base64.b64encode(b"a\nb").decode()}}, "has line breaks"),
    ],
)
async def test_a_secret_that_is_of_no_use_says_what_to_do(document: dict[str, Any] | None, words: str) -> None:
    bench = Bench()
    if document is not None:
        bench.api.put("/api/v1/namespaces/operator/secrets/em", document)

    with pytest.raises(CredentialsMissingError, match=words):
        await OwnSecrets(bench.kube, "operator").read(SecretKeyRef(name="em", key="token"))  # type: ignore[arg-type]


async def test_a_secret_that_cannot_be_read_now_is_not_missing() -> None:
    bench = Bench()
    ref, secrets = SecretKeyRef(name="em", key="token"), OwnSecrets(bench.kube, "operator")  # type: ignore[arg-type]
    bench.kube.failure = UNAVAILABLE
    with pytest.raises(SignalUnavailableError) as raised:
        await secrets.read(ref)
    assert not isinstance(raised.value, CredentialsMissingError)
    bench.kube.failure = ForbiddenError("no")
    with pytest.raises(CredentialsMissingError, match="allow its service account `get` on secrets in operator"):
        await secrets.read(ref)
