"""NodePowers: which there should be, and how they differ from those that there are.

A node has one as long as a pod of a governed variant is on it that something was chosen for. They are applied
server-side and never forced: one that somebody else wrote stays theirs, and the policies concerned say so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heliotrope.api.v1alpha1.common import API_VERSION, Enforcement
from heliotrope.api.v1alpha1.nodepower import IntentPod, NodePowerSpec, PowerIntent
from heliotrope.power.plan import Setting
from heliotrope_operator.kinds.nodepowers import MANAGED_BY, MANAGER, KnownNodePower
from heliotrope_operator.kinds.nodes import Node
from heliotrope_operator.power.gather import Engines, Governed
from heliotrope_operator.resources import Key

MAX_INTENTS = 64
MAX_PODS = 64
"""Of one intent; a node has not so many GPUs that a variant could have more pods on it."""

Document = dict[str, object]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The NodePower that a node should have."""

    spec: NodePowerSpec
    policies: frozenset[Key]
    """Whose intents are in it."""
    left_out: int = 0
    """Intents beyond the most that a NodePower holds."""


def wanted_node_powers(chosen: Sequence[tuple[Governed, Mapping[str, Setting]]]) -> dict[str, Wanted]:
    """The NodePowers of all nodes, by name.

    Args:
        chosen: policies with the settings of their variants by `namespace/name`.
    """
    found: dict[str, list[tuple[Key, PowerIntent]]] = {}
    for governed, settings in chosen:
        enforcement = Enforcement.ENFORCE if governed.acts else Enforcement.ADVISE
        for engines in governed.engines:
            setting = settings.get(f"{engines.key.namespace}/{engines.key.name}")
            for node, pods in engines.by_node.items():
                intent = _intent(engines, setting, pods, enforcement)
                if intent is not None:
                    found.setdefault(node, []).append((governed.key, intent))
    return {node: _wanted(entries) for node, entries in found.items()}


def node_power_document(name: str, wanted: Wanted, node: Node | None) -> Document:
    """What is applied. It belongs to the Node, so that it goes with it."""
    metadata: Document = {"name": name, "labels": {MANAGED_BY: MANAGER}}
    if node is not None and node.uid:
        metadata["ownerReferences"] = [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.uid}]
    return {
        "apiVersion": API_VERSION,
        "kind": "NodePower",
        "metadata": metadata,
        "spec": wanted.spec.model_dump(by_alias=True, exclude_none=True, mode="json"),
    }


def is_so(known: KnownNodePower | None, wanted: Wanted) -> bool:
    """Whether nothing has to be written."""
    return known is not None and known.managed and known.spec == wanted.spec


def _intent(
    engines: Engines, setting: Setting | None, pods: Sequence[tuple[str, str]], enforcement: Enforcement
) -> PowerIntent | None:
    spec = engines.variant.spec
    pods = pods[:MAX_PODS]
    resting = tuple(name for name, _ in pods if name in engines.resting)
    idle_clock = spec.clock_range.min_mhz if resting and spec.clock_range is not None else None
    clock = None if setting is None else setting.sm_clock_mhz
    watts = None if setting is None else setting.watts
    if clock is None and watts is None and idle_clock is None:
        return None
    return PowerIntent(
        namespace=engines.key.namespace,
        variant=engines.key.name,
        role=spec.role,
        pods=tuple(IntentPod(name=name, uid=uid) for name, uid in pods),
        enforcement=enforcement,
        sm_clock_mhz=clock,
        watts=watts,
        resting_pods=resting if idle_clock is not None else (),
        resting_sm_clock_mhz=idle_clock,
    )


def _wanted(entries: Sequence[tuple[Key, PowerIntent]]) -> Wanted:
    ordered = sorted(entries, key=lambda entry: (entry[1].namespace, entry[1].variant))
    intents = tuple(intent for _, intent in ordered[:MAX_INTENTS])
    acts = any(intent.enforcement is Enforcement.ENFORCE for intent in intents)
    return Wanted(
        NodePowerSpec(enforcement=Enforcement.ENFORCE if acts else Enforcement.ADVISE, intents=intents),
        frozenset(policy for policy, _ in ordered[:MAX_INTENTS]),
        max(len(ordered) - MAX_INTENTS, 0),
    )
