"""An endpoint as discovered, and what was read from its engine."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from heliotrope.api.v1alpha1.common import REGION_LABEL as REGION_LABEL
from heliotrope.api.v1alpha1.common import RESTING_LABEL as RESTING_LABEL
from heliotrope.api.v1alpha1.common import ROLE_LABEL as ROLE_LABEL
from heliotrope.decide.candidates import Embodied, FloatColumn, Hardware
from heliotrope.engine.model import EngineModel
from heliotrope.predict.features import UNKNOWN_HARDWARE

ENGINE_TYPE_LABEL = "llm-d.ai/engine-type"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One serving port, as file discovery or the Kubernetes API gives it. Equal fields: the same endpoint."""

    name: str
    namespace: str
    address: str
    port: int
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    node_region: str | None = None
    """The node's `topology.kubernetes.io/region`, if known."""
    node_address: str | None = None
    """Where the node's own exporters listen."""
    pod: str | None = None
    """The pod's name, by which a node's exporter knows who has which accelerator."""
    key: str = field(init=False, compare=False, repr=False)
    """Unique name among the endpoints of a pool: `namespace/name`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"{self.namespace}/{self.name}")

    @property
    def host_port(self) -> str:
        """What the gateway is told: `ip:port`."""
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


@dataclass(frozen=True, slots=True)
class Traits:
    """What the resources say of an endpoint; None: they do not say."""

    variant: str | None = None
    """`namespace/name` of the WorkloadVariant that claims it."""
    region: str | None = None
    engine: EngineModel | None = None
    quality: float | None = None
    price_per_hour: float | None = None
    currency: str | None = None
    """Of the price."""
    embodied: Embodied | None = None
    power_limit_watts: float | None = None
    """Of all its accelerators together, as its variant states it."""
    hardware: Hardware | None = None
    hardware_row: FloatColumn = field(default_factory=lambda: UNKNOWN_HARDWARE, compare=False, repr=False)
    """`heliotrope.decide.rows.describe` of its hardware."""


@dataclass(frozen=True, slots=True)
class EngineMetrics:
    """One scrape of an engine. A field is None where the engine does not export it or exports NaN."""

    scraped_s: float
    """Monotonic time at which the answer arrived."""
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    """Share of KV blocks in use, in [0, 1]."""
    block_size: int | None = None
    num_blocks: int | None = None
    prompt_tokens_total: float | None = None
    computed_prompt_tokens_total: float | None = None
    """Those that no cache and no other engine supplied."""
    first_tokens_total: float | None = None
    """Requests whose prefill has ended."""
    first_token_seconds_total: float | None = None
    """Their times to first token, added up."""
    inter_tokens_total: float | None = None
    """Tokens after the first ones, whose time since the token before was measured."""
    inter_token_seconds_total: float | None = None
    """Those times, added up."""
    generation_tokens_total: float | None = None
    iterations_total: float | None = None
    """Steps of the engine: how many times it has run its model."""
    prefix_cache_queries_total: float | None = None
    prefix_cache_hits_total: float | None = None
    energy_millijoules: float | None = None
    """Sum of the cumulative energy counters of the endpoint's accelerators."""
    accelerators: tuple[tuple[str, int | None], ...] = ()
    """The energy counter of each accelerator on the page, in whole mJ; None: not a number."""
    power_watts: float | None = None
    """Of all its accelerators together."""
    power_limit_watts: float | None = None
    """What they may draw together."""
    throttled: bool | None = None
    """An accelerator is slowed down by its power cap, heat or a power brake."""
    sm_clock_mhz: float | None = None
    """Mean over its accelerators."""
    preemptions_total: float | None = None
    """Requests put back into the queue because KV memory ran out; they are prefilled again."""
    asleep: bool | None = None
