"""The keys of an `EndpointPickerConfig`, as llm-d writes them.

Whether what the file names exists and is supported is for the loader to say; here is only its form.
"""

from typing import Any, ClassVar, Literal

from pydantic import Field

from heliotrope_epp.plugins.parameters import StrictModel
from heliotrope_epp.plugins.scalars import Finite, Quantity, Seconds

API_VERSION = "llm-d.ai/v1alpha1"
LEGACY_API_VERSION = "inference.networking.x-k8s.io/v1alpha1"
KIND = "EndpointPickerConfig"


class PluginSpec(StrictModel):
    """An instance of a plugin type."""

    type: str = Field(min_length=1)
    name: str = ""
    """What references call it; by default its type."""
    parameters: dict[str, Any] = Field(default_factory=dict)


class SchedulingPlugin(StrictModel):
    """A plugin's place in a profile."""

    plugin_ref: str = Field(min_length=1)
    weight: Finite | None = Field(default=None, ge=0.0)
    """Of a scorer; by default 1."""


class SchedulingProfile(StrictModel):
    """Filters, scorers and a picker that decide together."""

    name: str = Field(min_length=1)
    plugins: tuple[SchedulingPlugin, ...] = ()


class PluginReference(StrictModel):
    """Names an entry of `plugins`."""

    plugin_ref: str = Field(min_length=1)


class DetectorReference(StrictModel):
    """Names a saturation detector; empty: llm-d's default."""

    plugin_ref: str = ""


class DataLayerSource(StrictModel):
    """A source of endpoint data and what is read from it."""

    plugin_ref: str = Field(min_length=1)
    extractors: tuple[PluginReference, ...] = ()


class DataLayer(StrictModel):
    """Where endpoints and their metrics come from."""

    unsupported: ClassVar[frozenset[str]] = frozenset(
        {"peerDiscovery", "crossReplicaSyncerPluginRef", "crossReplicaSyncInterval"}
    )

    inject_defaults: bool = True
    """Read engine metrics even if no source says so."""
    sources: tuple[DataLayerSource, ...] = ()
    discovery: PluginReference | None = None
    """None: the Kubernetes API, or what the process is told."""


class PriorityBand(StrictModel):
    """Limits of one priority."""

    priority: int = 0
    max_bytes: Quantity | None = None
    max_requests: Quantity | None = None
    fairness_policy_ref: str = ""
    ordering_policy_ref: str = ""


class FlowControl(StrictModel):
    """Queues in front of the pool; only in force with the `flowControl` feature gate."""

    max_bytes: Quantity | None = None
    max_requests: Quantity | None = None
    default_request_ttl: Seconds | None = Field(default=None, alias="defaultRequestTTL")
    no_endpoint_request_ttl: Seconds | None = Field(default=None, alias="noEndpointRequestTTL")
    default_priority_band: PriorityBand | None = None
    default_negative_priority_band: PriorityBand | None = None
    priority_bands: tuple[PriorityBand, ...] = ()
    usage_limit_policy_plugin_ref: str = ""
    saturation_detector: DetectorReference | None = None
    enable_eviction: bool = False


class RequestHandler(StrictModel):
    """How requests are read."""

    parsers: tuple[PluginReference, ...] = ()


class EndpointPickerConfig(StrictModel):
    """The whole file."""

    api_version: Literal["llm-d.ai/v1alpha1", "inference.networking.x-k8s.io/v1alpha1"]
    kind: Literal["EndpointPickerConfig"]
    feature_gates: tuple[str, ...] = ()
    plugins: tuple[PluginSpec, ...] = ()
    scheduling_profiles: tuple[SchedulingProfile, ...] = ()
    data_layer: DataLayer = Field(default_factory=DataLayer)
    flow_control: FlowControl | None = None
    request_handler: RequestHandler = Field(default_factory=RequestHandler)
    saturation_detector: DetectorReference | None = None
    """Deprecated for `flowControl.saturationDetector`."""
    parser: PluginReference | None = None
    """Deprecated for `requestHandler.parsers`."""
