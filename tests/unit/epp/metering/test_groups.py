"""Which engines share which accelerators."""

from heliotrope_epp.datalayer.endpoint import Endpoint, EngineMetrics
from heliotrope_epp.datalayer.node_energy import Accelerator, NodeReading
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.metering.groups import ENGINE_PAGE, Group, Reading, groups

NODE = "10.9.9.9"


def state(name: str, *, pod: str | None = None, node: str | None = NODE, own: int | None = None) -> EndpointState:
    page = EngineMetrics(3.0, accelerators=() if own is None else (("x", own),))
    return EndpointState(Endpoint(name, "ns", "10.0.0.1", 1, node_address=node, pod=pod), metrics=page)


def node(**pods: tuple[str, ...]) -> dict[str, NodeReading]:
    accelerators = {uuid: Accelerator(7, frozenset(("ns", pod) for pod in names)) for uuid, names in pods.items()}
    return {NODE: NodeReading(5.0, accelerators)}


def keys(*names: str) -> frozenset[str]:
    return frozenset(f"ns/{name}" for name in names)


def test_an_engines_own_page() -> None:
    assert groups([state("a", own=9), state("b")], {}) == {Group(keys("a"), ENGINE_PAGE): Reading(3.0, {"x": 9})}


def test_a_nodes_page_goes_before_the_engines_own() -> None:
    found = groups([state("a", own=9), state("b", own=8)], node(g0=("a",), g1=("a",), g2=("stranger",)))

    assert found == {
        Group(keys("a"), NODE): Reading(5.0, {"g0": 7, "g1": 7}),
        Group(keys("b"), ENGINE_PAGE): Reading(3.0, {"x": 8}),
    }


def test_pods_that_share_belong_together_through_all_that_they_share() -> None:
    states = [state(name) for name in "abcd"]

    found = groups(states, node(g0=("a", "b"), g1=("c",), g2=("b", "c"), g3=("d",)))

    assert found == {
        Group(keys("a", "b", "c"), NODE): Reading(5.0, {"g0": 7, "g1": 7, "g2": 7}),
        Group(keys("d"), NODE): Reading(5.0, {"g3": 7}),
    }


def test_ranks_of_one_pod_cannot_be_told_apart() -> None:
    found = groups([state("p-rank-0", pod="p"), state("p-rank-1", pod="p")], node(g0=("p",), g1=("p",)))

    assert found == {Group(keys("p-rank-0", "p-rank-1"), NODE): Reading(5.0, {"g0": 7, "g1": 7})}


def test_a_stranger_is_noticed() -> None:
    found = groups([state("a"), state("b")], node(g0=("a", "stranger"), g1=("b",)))

    assert set(found) == {Group(keys("a"), NODE, stranger=True), Group(keys("b"), NODE)}


def test_a_pod_of_the_same_name_elsewhere_is_another() -> None:
    elsewhere = {NODE: NodeReading(5.0, {"g0": Accelerator(7, frozenset({("other", "a")}))})}

    assert groups([state("a")], elsewhere) == {}
    assert groups([state("a", node="10.8.8.8")], node(g0=("a",))) == {}
