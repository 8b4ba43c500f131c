"""Carbon sources that fail on a real API server: told while the value counts, neutral after, back with an event."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.contract.operator.cluster import Api, conditions
from tests.contract.operator.process import OperatorProcess, eventually
from tests.support.carbon_apis import CarbonApis, carbon_apis
from tests.support.upstream import Reply

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

Unique = Callable[[str], str]


@pytest.fixture
def apis() -> Iterator[CarbonApis]:
    with carbon_apis(time.time) as running:
        yield running


def prometheus(apis: CarbonApis) -> dict[str, Any]:
    """Whose values are as old as the test says."""
    labels = {"__name__": "grid_intensity_carbon_average", "location": "ES", "units": "gCO2e per kWh"}

    class Now(dict[str, Any]):
        def __getitem__(self, key: str) -> Any:
            return {"metric": labels, "taken": time.time(), "value": apis.truth(time.time())}[key]

    apis.prometheus = [Now()]
    return {"prometheus": {"url": f"{apis.url}/prom", "query": "grid_intensity_carbon_average"}}


def test_an_outage_goes_from_failing_to_stale_to_neutral_and_ends_with_an_event(
    api: Api, operator: OperatorProcess, unique: Unique, apis: CarbonApis
) -> None:
    name = unique("outage")
    api.apply(api.pool(), api.region(name, source=prometheus(apis), pollInterval="1s", staleAfter="8s"))
    api.apply(api.policy("green"), api.variant("v", target=None, regionRef={"name": name}))
    eventually(lambda: conditions(api.get("CarbonPolicy", "green")).get("SignalsFresh") == ("True", "SignalsFresh"))
    assert api.get("RegionProfile", name)["status"]["intensity"]["value"] == "250"

    apis.fail("prom", Reply(503, b"down"))

    eventually(lambda: conditions(api.get("RegionProfile", name))["SignalFresh"] == ("True", "SourceFailing"))
    assert api.get("RegionProfile", name)["status"]["freshness"] == "Fresh"
    eventually(lambda: conditions(api.get("RegionProfile", name))["SignalFresh"] == ("False", "SignalStale"))
    status = api.get("RegionProfile", name)["status"]
    assert (status["freshness"], status["intensity"]["value"]) == ("Stale", "250")
    eventually(lambda: conditions(api.get("CarbonPolicy", "green"))["SignalsFresh"] == ("False", "SignalsStale"))
    assert operator.metric("heliotrope_carbon_signal_fresh", {"region": name}) == 0
    apis.truth = lambda _: 0.0  # clean, and not absent
    apis.fail("prom", None)
    eventually(lambda: conditions(api.get("CarbonPolicy", "green"))["SignalsFresh"] == ("True", "SignalsFresh"))
    status = api.get("RegionProfile", name)["status"]
    assert (status["freshness"], status["intensity"]["value"]) == ("Fresh", "0")
    eventually(lambda: len(api.told(name)) >= 3)
    assert api.told(name)[:3] == [("Warning", "SourceFailing"), ("Warning", "SignalStale"), ("Normal", "SignalFresh")]


def test_each_way_of_failing_is_counted_by_its_name(
    api: Api, operator: OperatorProcess, unique: Unique, apis: CarbonApis
) -> None:
    name = unique("counted")
    api.apply(api.region(name, source=prometheus(apis), pollInterval="1s"))
    for reply, outcome in (
        (None, "success"),
        (Reply(429, headers={"Retry-After": "1"}), "throttled"),
        (Reply(200, b"<html>"), "bad_answer"),
        (Reply(404), "no_data"),
        (Reply(500), "error"),
    ):
        apis.fail("prom", reply)
        eventually(
            lambda outcome=outcome: (  # type: ignore[misc]
                operator.metric("heliotrope_carbon_polls_total", {"region": name, "outcome": outcome}) >= 1
            ),
            outcome,
        )

    api.delete("RegionProfile", name)

    eventually(lambda: operator.metric("heliotrope_carbon_polls_total", {"region": name}) == 0)


def test_sources_that_hang_hold_up_nobody(
    api: Api, operator: OperatorProcess, unique: Unique, apis: CarbonApis
) -> None:
    apis.fail("prom", Reply(200, b"x" * 100, hang=True))
    hanging = [unique("hangs") for _ in range(24)]
    api.apply(*(api.region(name, source=prometheus(apis), pollInterval="1s") for name in hanging))
    eventually(lambda: len(apis.asked) >= 8)
    started, quick = time.monotonic(), unique("quick")

    api.apply(api.region(quick))

    eventually(lambda: api.get("RegionProfile", quick).get("status", {}).get("freshness") == "Fresh", seconds=15.0)
    assert time.monotonic() - started < 15.0
    assert operator.health()[0] == 200
    eventually(lambda: conditions(api.get("RegionProfile", hanging[0])).get("SignalFresh") == ("False", "SignalAbsent"))
    for name in hanging:
        api.delete("RegionProfile", name)
