"""RegionProfile on a real API server: values, freshness, sources, and what a person sees."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.contract.operator.cluster import NAMESPACE, Api, conditions
from tests.contract.operator.process import OperatorProcess, eventually

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]


def series(*hours: tuple[float, float]) -> str:
    """A table of (hours from now, g/kWh)."""
    now = datetime.now(UTC).replace(microsecond=0)
    rows = [f"{(now + timedelta(hours=offset)).isoformat()},{value}" for offset, value in hours]
    return "\n".join(["datetime_utc,g", *rows, ""])


def test_a_static_region_is_fresh_and_prints_well(
    api: Api, operator: OperatorProcess, unique: Callable[[str], str]
) -> None:
    name = unique("es")
    api.apply(api.region(name))

    status = eventually(lambda: api.get("RegionProfile", name).get("status"))

    assert status["freshness"] == "Fresh"
    assert status["intensity"] == status["intensity"] | {
        "value": "140",
        "source": "static",
        "signalType": "average",
        "emissionFactor": "lifecycle",
    }
    assert status["observedGeneration"] == 1
    assert api.told(name) == []
    header, row = api.cluster.kubectl("get", "rp", name).splitlines()
    assert header.split() == ["NAME", "ZONE", "INTENSITY", "FRESHNESS", "SIGNAL", "MEASURED", "AGE"]
    assert row.split()[:5] == [name, "ES", "140", "Fresh", "average"]


def test_zero_is_clean_and_not_absent(api: Api, operator: OperatorProcess, unique: Callable[[str], str]) -> None:
    name = unique("hydro")
    api.apply(api.region(name, source={"static": {"intensityGramsPerKwh": "0"}}))

    status = eventually(lambda: api.get("RegionProfile", name).get("status"))

    assert (status["freshness"], status["intensity"]["value"]) == ("Fresh", "0")


def test_a_file_gives_value_and_forecast(
    api: Api, operator: OperatorProcess, unique: Callable[[str], str], tmp_path: Path
) -> None:
    name, path = unique("file"), tmp_path / "es.csv"
    path.write_text(series((-1.5, 300), (-0.5, 200), (0.5, 100), (1.5, 50)))
    api.apply(api.region(name, source={"file": {"path": str(path), "valueColumn": "g"}}))

    status = eventually(lambda: api.get("RegionProfile", name).get("status"))

    assert (status["freshness"], status["intensity"]["value"], status["intensity"]["source"]) == (
        "Fresh",
        "200",
        "file",
    )
    assert [point["value"] for point in status["forecast"]["points"]] == ["200", "100", "50"]
    assert status["forecast"]["source"] == "file"


def test_a_config_map_is_read_and_its_changes_are_seen(
    api: Api, operator: OperatorProcess, unique: Callable[[str], str]
) -> None:
    name = unique("map")
    api.apply(api.config_map(name, series((-0.5, 210)), NAMESPACE))
    source = {"configMap": {"name": name, "key": "carbon.csv", "valueColumn": "g"}}
    api.apply(api.region(name, source=source, pollInterval="1s"))
    eventually(lambda: api.get("RegionProfile", name).get("status", {}).get("intensity", {}).get("value") == "210")

    api.apply(api.config_map(name, series((-0.25, 190)), NAMESPACE))

    eventually(lambda: api.get("RegionProfile", name)["status"]["intensity"]["value"] == "190")
    assert api.told(name) == []


def test_a_value_goes_stale_at_its_time_and_comes_back(
    api: Api, operator: OperatorProcess, unique: Callable[[str], str], tmp_path: Path
) -> None:
    name, path = unique("stale"), tmp_path / "es.csv"
    path.write_text(series((0, 250)))
    started = datetime.now(UTC)
    source = {"file": {"path": str(path), "valueColumn": "g"}}
    api.apply(api.pool(), api.region(name, source=source, pollInterval="1s", staleAfter="6s"))
    api.apply(api.policy("green"), api.variant("v", target=None, regionRef={"name": name}))
    eventually(lambda: conditions(api.get("CarbonPolicy", "green")).get("SignalsFresh") == ("True", "SignalsFresh"))

    eventually(lambda: api.get("RegionProfile", name)["status"]["freshness"] == "Stale")

    assert datetime.now(UTC) - started >= timedelta(seconds=5)
    stale = api.get("RegionProfile", name)
    assert conditions(stale)["SignalFresh"] == ("False", "SignalStale")
    assert stale["status"]["intensity"]["value"] == "250"
    eventually(lambda: conditions(api.get("CarbonPolicy", "green"))["SignalsFresh"] == ("False", "SignalsStale"))
    path.write_text(series((0, 240)))
    eventually(lambda: api.get("RegionProfile", name)["status"]["freshness"] == "Fresh")
    eventually(lambda: conditions(api.get("CarbonPolicy", "green"))["SignalsFresh"] == ("True", "SignalsFresh"))
    eventually(lambda: len(api.told(name)) >= 2)
    assert api.told(name)[:2] == [("Warning", "SignalStale"), ("Normal", "SignalFresh")]
    assert api.told("green")[:2] == [("Warning", "SignalsStale"), ("Normal", "SignalsFresh")]


def test_a_source_that_stops_answering_is_told_before_its_value_is_stale(
    api: Api, operator: OperatorProcess, unique: Callable[[str], str], tmp_path: Path
) -> None:
    name, path = unique("failing"), tmp_path / "es.csv"
    path.write_text(series((-0.1, 250)))
    api.apply(api.region(name, source={"file": {"path": str(path), "valueColumn": "g"}}, pollInterval="1s"))
    eventually(lambda: conditions(api.get("RegionProfile", name)).get("SignalFresh") == ("True", "SignalFresh"))

    path.unlink()

    eventually(lambda: conditions(api.get("RegionProfile", name))["SignalFresh"] == ("True", "SourceFailing"))
    eventually(lambda: api.told(name) == [("Warning", "SourceFailing")])
    assert "No such file" in api.events(name)[0]["note"]
    assert api.get("RegionProfile", name)["status"]["freshness"] == "Fresh"


def test_a_source_that_cannot_be_asked_is_said_and_told_once(
    api: Api, operator: OperatorProcess, unique: Callable[[str], str]
) -> None:
    source, reason = {"file": {"path": "relative.csv", "valueColumn": "g"}}, "InvalidSource"
    name = unique("unusable")
    api.apply(api.region(name, source=source))

    eventually(lambda: conditions(api.get("RegionProfile", name)).get("Accepted") == ("False", reason))

    assert conditions(api.get("RegionProfile", name))["SignalFresh"] == ("False", "SignalAbsent")
    eventually(lambda: ("Warning", reason) in api.told(name))
    described = api.cluster.kubectl("describe", "rp", name)
    assert reason in described.split("Events:")[1]
    assert "heliotrope.io/operator" in described.split("Events:")[1]


def test_mere_values_do_not_fill_the_api_server(
    api: Api, operator: OperatorProcess, unique: Callable[[str], str]
) -> None:
    """A replay in fast motion has a new value every tenth of a second; its status is written a few times only."""
    name = unique("fast")
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    rows = [f"{(now + timedelta(hours=hour)).isoformat()},{100 + hour % 7}" for hour in range(2_000)]
    api.apply(api.config_map(name, "\n".join(["datetime_utc,g", *rows]), NAMESPACE))
    replay = {"seriesStart": now.isoformat().replace("+00:00", "Z"), "speed": 36_000}
    source = {"configMap": {"name": name, "key": "carbon.csv", "valueColumn": "g", "replay": replay}}
    api.apply(api.region(name, source=source, staleAfter="60h"))
    eventually(lambda: api.get("RegionProfile", name).get("status"))

    def writes() -> int:
        return api.requests(verb="PATCH", resource="regionprofiles", subresource="status")

    before, seen = writes(), set()
    deadline = datetime.now(UTC) + timedelta(seconds=8)
    while datetime.now(UTC) < deadline:
        seen.add(api.get("RegionProfile", name)["status"]["intensity"]["time"])
    assert 2 <= len(seen) <= 6
    assert writes() - before <= 8
