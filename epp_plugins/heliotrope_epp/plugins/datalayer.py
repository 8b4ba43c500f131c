"""Settings of the data layer: its sources and its scraper do the work."""

from typing import ClassVar, Literal

from pydantic import Field

from heliotrope_epp.plugins.parameters import StrictModel
from heliotrope_epp.plugins.scalars import Seconds

FILE_DISCOVERY = "file-discovery"
METRICS_DATA_SOURCE = "metrics-data-source"
CORE_METRICS_EXTRACTOR = "core-metrics-extractor"

MIN_INTERVAL_SECONDS = 0.05
"""As in llm-d."""


class FileDiscoveryParameters(StrictModel):
    """Endpoints from a file instead of the Kubernetes API."""

    path: str = Field(min_length=1)
    """The YAML or JSON file that lists the endpoints."""
    watch_file: bool = False
    """Read it again when it changes."""


class MetricsSourceParameters(StrictModel):
    """Where and how often engines are asked for their metrics."""

    unsupported: ClassVar[frozenset[str]] = frozenset({"port", "caCertPath", "clientCertPath", "clientKeyPath"})

    scheme: Literal["http"] = "http"
    path: str = Field(default="/metrics", pattern="^/")
    interval: Seconds | None = Field(default=None, ge=MIN_INTERVAL_SECONDS)
    """Seconds between scrapes; None: as the process is set."""
    insecure_skip_verify: bool = True
    """Without meaning for http."""


class MetricsExtractorParameters(StrictModel):
    """Which engine's metric names are read: those of the label's value, vLLM's without the label."""

    unsupported: ClassVar[frozenset[str]] = frozenset({"engineConfigs"})

    engine_label_key: Literal["llm-d.ai/engine-type"] = "llm-d.ai/engine-type"
    default_engine: Literal["vllm"] = "vllm"
