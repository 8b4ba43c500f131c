"""What parts tell each other: each table has one part that writes it, and any that read it.

Values are frozen; who writes one enqueues whom it concerns. What is not in a table is unknown. The tables are of this
process alone: after a start they fill again, and until then whoever reads them holds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from heliotrope.scale.facts import DemandForecast, ScalingState
from heliotrope_operator.actuation.outcome import Outcome
from heliotrope_operator.actuation.wanted import WantedReplicas
from heliotrope_operator.hub.current import CurrentCeilings
from heliotrope_operator.resources import Key
from heliotrope_operator.scales import Scale


@dataclass(frozen=True, slots=True)
class VariantLoad:
    """What all replicas of a variant together are asked for, and how they answer; None where it is unknown."""

    measured_unix_s: float
    requests_per_second: float | None = None
    """Expected for the next minutes where that is more than now."""
    prompt_tokens: float | None = None
    """Of a request on average; what has to be computed, cached tokens left aside where that is known."""
    output_tokens: float | None = None
    ttft_seconds: float | None = None
    """As measured, at the quantile that the promise is meant for."""
    tpot_seconds: float | None = None
    mean_ttft_seconds: float | None = None
    """As measured lately, the mean over requests; it keeps no promise, but tells how good a model is."""
    mean_tpot_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class EngineSeen:
    """An engine as pickers saw it last; None: unknown."""

    asleep: bool | None = None
    running: float | None = None
    waiting: float | None = None


@dataclass(frozen=True, slots=True)
class PoolDemand:
    """What the pickers of a pool say."""

    measured_unix_s: float
    requests_per_second: Mapping[str, float] | None
    """By model, as requests name it; None: unknown."""
    held: Mapping[str, float]
    """Requests by model that wait because no engine is awake."""
    engines: Mapping[str, EngineSeen]
    """By pod."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a model of a pool will be asked for."""

    made_unix_s: float
    step_seconds: float
    demand: DemandForecast


@dataclass(frozen=True, slots=True)
class Tables:
    """All of them, by the key of a WorkloadVariant, `demand` and `expected` by that of an InferencePool."""

    demand: dict[Key, PoolDemand] = field(default_factory=dict)
    """Written by whatever observes demand (the scaling part)."""

    expected: dict[tuple[Key, str], Expected] = field(default_factory=dict)
    """By pool and model; what nobody can say is not there. Written by whatever plans (the scaling part)."""

    loads: dict[Key, VariantLoad] = field(default_factory=dict)
    """Written by whatever observes demand (the scaling part)."""
    scales: dict[Key, Scale] = field(default_factory=dict)
    """What `/scale` of its target said last. Written by the variant's status."""
    scaling: dict[Key, ScalingState] = field(default_factory=dict)
    """What the last decision remembers for the next. Written by whatever plans (the scaling part)."""
    wanted: WantedReplicas = field(default_factory=WantedReplicas)
    """What is wanted of each variant. Written by whatever plans (the scaling part)."""
    outcomes: dict[Key, Outcome | None] = field(default_factory=dict)
    """What became of that, None where no policy asks for it. Written by the actuation of the variant's target."""
    resting: dict[Key, frozenset[str]] = field(default_factory=dict)
    """Names of the pods whose engines rest at an idle clock. Written by the activation part."""
    ceilings: CurrentCeilings = field(default_factory=CurrentCeilings)
    """What a hub allows this cluster; of no variant but of the cluster. Written by the hub's member."""
