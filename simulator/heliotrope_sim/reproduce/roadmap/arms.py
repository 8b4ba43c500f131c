"""What is compared: baselines, phase management, KV actions, ablations. An arm is data; `picker` carries it out."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from heliotrope.cache.action import KvAction
from heliotrope.decide.policy import DEFAULT_ORDER, Term

ALL_ACTIONS = frozenset(KvAction)
OWN_CACHES = frozenset({KvAction.RECOMPUTE, KvAction.LOCAL_HIT, KvAction.ROUTE_TO_OWNER})
NO_CACHES = frozenset({KvAction.RECOMPUTE})


class Route(StrEnum):
    """Who chooses the endpoint."""

    ROUND_ROBIN = "each in turn"
    LEAST_LOADED = "the fewest requests"
    CACHE_AWARE = "the best sum of llm-d's scores"
    DECIDE = "heliotrope.decide"


class Phases(StrEnum):
    """Where a prompt is prefilled."""

    AGGREGATED = "where it decodes"
    FIXED = "always on H100, decoded on A100"
    ADAPTIVE = "where each decision says"


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to run the fleet."""

    name: str
    route: Route = Route.DECIDE
    order: tuple[Term, ...] = DEFAULT_ORDER
    promises: bool = True
    """Whether plans have to keep the SLOs; False: they are only measured."""
    actions: frozenset[KvAction] = ALL_ACTIONS
    """What decisions count on and use."""
    reuse: bool = True
    """Whether engines reuse prefixes at all."""
    tiers: bool = False
    """Whether engines offload evicted KV to host memory."""
    phases: Phases = Phases.AGGREGATED
    models: bool = False
    """Whether a smaller model may answer where it is good enough."""
    energy_known: bool = True
    """False: every endpoint is believed to draw what the mean endpoint does."""
    embodied: bool = True
    """Whether grams count the making of hardware."""
    encoders: bool = True
    """Whether images may be encoded at another endpoint."""
    pinned: bool = False
    """Later turns of a session go where its first one went."""


ROUND_ROBIN = Arm("round robin", Route.ROUND_ROBIN)
LEAST_LOADED = Arm("least loaded", Route.LEAST_LOADED)
CACHE_AWARE = Arm("cache-aware", Route.CACHE_AWARE)
PREDICTED_LATENCY = Arm("predicted latency", order=(Term.LATENCY,), actions=OWN_CACHES)
ENERGY_ONLY = Arm("energy only", order=(Term.ENERGY,), promises=False, actions=OWN_CACHES)
CARBON_ONLY = Arm("carbon only", order=(Term.CARBON,), promises=False, actions=OWN_CACHES)
JOINT = Arm("joint", phases=Phases.ADAPTIVE)

BASELINES = (ROUND_ROBIN, LEAST_LOADED, CACHE_AWARE, PREDICTED_LATENCY, ENERGY_ONLY, CARBON_ONLY, JOINT)
"""§8.3; of the last three only the joint one promises latency."""

PHASES: Mapping[str, Arm] = {
    "aggregated": replace(JOINT, name="aggregated", phases=Phases.AGGREGATED, actions=OWN_CACHES),
    "fixed P/D": replace(JOINT, name="fixed P/D", phases=Phases.FIXED, actions=OWN_CACHES),
    "adaptive P/D": replace(JOINT, name="adaptive P/D", phases=Phases.ADAPTIVE, actions=OWN_CACHES),
}

_KV = Arm("kv")
KV: Mapping[str, Arm] = {
    "recompute": replace(_KV, name="recompute", actions=NO_CACHES, reuse=False),
    "owner affinity": replace(_KV, name="owner affinity", actions=OWN_CACHES),
    "offload": replace(_KV, name="offload", actions=OWN_CACHES | {KvAction.OFFLOAD_RELOAD}, tiers=True),
    "P2P": replace(_KV, name="P2P", actions=OWN_CACHES | {KvAction.PEER_TRANSFER}),
}
"""Each but the first two has what owner affinity has and one way more."""

FULL = replace(JOINT, name="joint with models", models=True)
ABLATIONS: Mapping[str, Arm] = {
    "energy prediction": replace(FULL, name="without energy prediction", energy_known=False),
    "carbon intensity": replace(
        FULL, name="without carbon intensity", order=tuple(t for t in DEFAULT_ORDER if t is not Term.CARBON)
    ),
    "cache energy": replace(FULL, name="without cache energy", actions=NO_CACHES),
    "model routing": replace(FULL, name="without model routing", models=False),
    "embodied term": replace(FULL, name="without the embodied term", embodied=False),
}
"""§8.4, but for DVFS."""

SESSIONS: Mapping[str, Arm] = {
    "naive": replace(CARBON_ONLY, name="carbon, blind to caches", promises=True, actions=NO_CACHES),
    "pinned": replace(CARBON_ONLY, name="sessions pinned", promises=True, pinned=True),
    "cache-aware": replace(CACHE_AWARE, name="cache-aware, blind to carbon"),
    "joint": replace(JOINT, name="joint"),
}
"""RQ4."""

INFRASTRUCTURE: Mapping[str, Arm] = {
    "neither": LEAST_LOADED,
    "infrastructure": JOINT,
    "models": replace(LEAST_LOADED, name="model routing alone", models=True),
    "both": FULL,
}
"""RQ5."""
