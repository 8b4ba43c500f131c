"""The live endpoints: who stays, who goes, what decisions see."""

import math

import pytest
from tests.unit.epp.datalayer.objects import policy, region

from heliotrope.carbon.signal import CarbonSignal, EmissionFactor, Reading, SignalType
from heliotrope_epp.datalayer.endpoint import Endpoint, EngineMetrics
from heliotrope_epp.datalayer.inflight import Dispatch
from heliotrope_epp.datalayer.resources import Resources
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.datalayer.store import EndpointStore
from heliotrope_epp.datalayer.world import World, resolve

READING = Reading(100.0, 0.0, "test", SignalType.AVERAGE, EmissionFactor.LIFECYCLE)


class Log:
    def __init__(self) -> None:
        self.events: list[str] = []

    def added(self, state: EndpointState) -> None:
        self.events.append(f"+{state.endpoint.key}@{state.endpoint.host_port}")

    def removed(self, key: str) -> None:
        self.events.append(f"-{key}")

    def cache_lost(self, key: str) -> None:
        self.events.append(f"?{key}")


def at(name: str, address: str = "10.0.0.1", port: int = 8000, region: str = "") -> Endpoint:
    return Endpoint(name, "llm", address, port, {"heliotrope.io/region": region} if region else {})


def world(*endpoints: Endpoint) -> World:
    return resolve(Resources(endpoints=endpoints), None, {})


def test_listeners_hear_of_comings_and_goings() -> None:
    store, early, late = EndpointStore(), Log(), Log()
    store.listen(early)
    store.apply(world(at("a"), at("b", port=8001)))
    store.listen(late)
    store.apply(world(at("b", port=8001), at("c", port=8002)))
    store.cache_lost("llm/b")

    assert early.events == ["+llm/a@10.0.0.1:8000", "+llm/b@10.0.0.1:8001", "-llm/a", "+llm/c@10.0.0.1:8002", "?llm/b"]
    assert late.events == early.events
    assert store.generation == 2


def test_an_endpoint_that_stays_keeps_its_requests_and_metrics_and_gets_its_new_traits() -> None:
    store, log = EndpointStore(), Log()
    store.listen(log)
    store.apply(world(at("a")))
    state = store.get("llm/a")
    assert state is not None
    state.inflight.add(Dispatch(0.0, 1.0, 1.0, 1.0), 0.0)
    state.metrics = EngineMetrics(1.0)

    store.apply(world(at("a", region="spain"), at("b", port=8001)))

    assert store.get("llm/a") is state
    assert state.traits.region == "spain"
    assert len(state.inflight) == 1
    assert state.metrics is not None
    assert log.events[1:] == ["+llm/b@10.0.0.1:8001"]


@pytest.mark.parametrize("moved", [at("a", "10.0.0.2"), at("a", port=8001)])
def test_an_endpoint_that_moves_is_another_engine(moved: Endpoint) -> None:
    store, log = EndpointStore(), Log()
    store.listen(log)
    store.apply(world(at("a")))
    before = store.get("llm/a")

    store.apply(world(moved))

    assert store.get("llm/a") is not before
    assert log.events[1:] == ["-llm/a", f"+llm/a@{moved.host_port}"]


def test_what_was_handed_out_stays_as_it_was() -> None:
    store = EndpointStore()
    store.apply(world(at("a")))
    states, regions = store.states(), store.regions()

    store.apply(world())

    assert [state.endpoint.name for state in states] == ["a"]
    assert store.states() == ()
    assert regions == {}


@pytest.mark.parametrize(
    ("subset", "expected"),
    [
        (None, ["a", "b", "c", "d"]),
        ((), []),
        (("10.0.0.1",), ["a", "b"]),
        (("10.0.0.1:8001",), ["b"]),
        (("10.0.0.1:8001, 10.0.0.2", "10.0.0.9:1"), ["b", "c"]),
        (("fd00::1",), ["d"]),
        (("[fd00::1]",), ["d"]),
        (("[fd00::1]:8000",), ["d"]),
        (("10.0.0.1:9999",), []),
        (("10.0.0",), []),
    ],
)
def test_a_subset_by_address_or_by_address_and_port(subset: tuple[str, ...] | None, expected: list[str]) -> None:
    store = EndpointStore()
    store.apply(world(at("a"), at("b", port=8001), at("c", "10.0.0.2"), at("d", "fd00::1")))

    assert [state.endpoint.name for state in store.candidates(subset)] == expected


def test_decisions_see_the_policy_and_regions_with_their_signals() -> None:
    store = EndpointStore()
    signal = CarbonSignal(READING, 60.0)
    store.set_signals({"spain": signal, "elsewhere": signal})
    assert (store.policy(), store.regions()) == (None, {})

    regions = (region("spain", pue="1.3", wueLitersPerKwh="0.5"), region("norway"))
    store.apply(resolve(Resources(policies=(policy("green"),), regions=regions), None, {}))

    held = store.policy()
    assert held is not None
    assert held.name == "llm/green"
    spain, norway = store.regions()["spain"], store.regions()["norway"]
    assert (spain.pue, spain.wue_l_per_kwh, spain.signal, spain.rtt_seconds) == (1.3, 0.5, signal, 0.0)
    assert norway.signal.reading is None
    assert math.isnan(norway.wue_l_per_kwh)

    store.set_signals({"norway": signal})
    assert store.regions()["spain"].signal.reading is None
    assert store.regions()["norway"].signal is signal


def test_network_times_count_from_home() -> None:
    regions = (
        region("home", roundTripTimes=[{"region": "near", "milliseconds": 12}]),
        region("near", roundTripTimes=[{"region": "home", "milliseconds": 99}]),
        region("far", roundTripTimes=[{"region": "home", "milliseconds": 150}]),
        region("unknown"),
    )
    store = EndpointStore(home_region="home")
    store.apply(resolve(Resources(regions=regions), None, {}))

    rtt = {name: view.rtt_seconds for name, view in store.regions().items()}

    assert (rtt["home"], rtt["near"], rtt["far"]) == (0.0, 0.012, 0.15)
    assert math.isnan(rtt["unknown"])
