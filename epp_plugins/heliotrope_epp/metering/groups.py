"""Which engines share which accelerators, from the pages that show them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from heliotrope_epp.datalayer.node_energy import NodeReading, Pod
from heliotrope_epp.datalayer.state import EndpointState

ENGINE_PAGE = "engine"
"""Source of a group whose counters are on the engine's own page."""


@dataclass(frozen=True, slots=True)
class Group:
    """Engines whose energy can only be told together."""

    endpoints: frozenset[str]
    source: str
    """`ENGINE_PAGE`, or the node's address."""
    stranger: bool = False
    """Somebody else has one of the accelerators too."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The counters of a group."""

    read_s: float
    values: Mapping[str, int | None]
    """mJ by accelerator; None: not a number."""


def groups(states: Iterable[EndpointState], nodes: Mapping[str, NodeReading]) -> dict[Group, Reading]:
    """The groups that show counters now; an endpoint is in one at most.

    What a node's exporter says of an endpoint's pod goes before what its engine says of itself.
    """
    found: dict[Group, Reading] = {}
    by_node: dict[str, dict[Pod, set[str]]] = {}
    own_pages = []
    for state in states:
        endpoint = state.endpoint
        pod = (endpoint.namespace, endpoint.pod or endpoint.name)
        node = endpoint.node_address
        if node is not None and node in nodes and any(pod in each.pods for each in nodes[node].accelerators.values()):
            by_node.setdefault(node, {}).setdefault(pod, set()).add(endpoint.key)
        else:
            own_pages.append(state)
    for node, pods in by_node.items():
        found |= _node_groups(node, nodes[node], pods)
    for state in own_pages:
        page = state.metrics
        if page is not None and page.accelerators:
            group = Group(frozenset({state.endpoint.key}), ENGINE_PAGE)
            found[group] = Reading(page.scraped_s, dict(page.accelerators))
    return found


def _node_groups(node: str, reading: NodeReading, pods: Mapping[Pod, set[str]]) -> dict[Group, Reading]:
    """Pods that share an accelerator belong together, and so on through all that they share."""
    together: list[tuple[set[Pod], dict[str, int | None]]] = []
    for uuid, accelerator in reading.accelerators.items():
        if not any(pod in pods for pod in accelerator.pods):
            continue
        members, values = set(accelerator.pods), {uuid: accelerator.millijoules}
        apart = []
        for other_members, other_values in together:
            if other_members.isdisjoint(members):
                apart.append((other_members, other_values))
            else:
                members |= other_members
                values |= other_values
        together = [*apart, (members, values)]
    return {
        Group(
            frozenset(key for pod in members if pod in pods for key in pods[pod]),
            node,
            stranger=not members <= pods.keys(),
        ): Reading(reading.read_s, values)
        for members, values in together
    }
