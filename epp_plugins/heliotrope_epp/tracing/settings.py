"""Settings of tracing from OpenTelemetry's environment variables, with what the command line says on top."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from heliotrope.units import seconds_from_milliseconds
from heliotrope_epp.tracing.sampling import Sampler

DEFAULT_RATIO = 0.1
"""llm-d's: one trace in ten is recorded where nobody upstream has decided."""

_SAMPLERS: Mapping[str, tuple[bool, float | None]] = {
    "always_on": (False, 1.0),
    "always_off": (False, 0.0),
    "traceidratio": (False, None),
    "parentbased_always_on": (True, 1.0),
    "parentbased_always_off": (True, 0.0),
    "parentbased_traceidratio": (True, None),
}


class Protocol(StrEnum):
    """How spans travel; `console` prints them on standard output, for looking at them without a collector."""

    GRPC = "grpc"
    HTTP = "http/protobuf"
    CONSOLE = "console"


@dataclass(frozen=True, slots=True)
class TracingSettings:
    """Where spans go and how many.

    What is not here (headers, certificates, compression) the exporter reads from its own OTEL_EXPORTER_OTLP_*
    variables.
    """

    enabled: bool = False
    protocol: Protocol = Protocol.GRPC
    endpoint: str | None = None
    """URL of the collector; None: as the exporter's variables say, else this machine."""
    sampler: Sampler = field(default_factory=Sampler)
    max_queue_spans: int = 2048
    """Spans that wait for their export; more are dropped and counted."""
    max_batch_spans: int = 512
    delay_s: float = 5.0
    """Longest time that a span waits for its batch."""
    flush_s: float = 5.0
    """How long the end of the process may wait for the last batches."""


@dataclass(frozen=True, slots=True)
class TracingFlags:
    """What the command line says; None: it does not, so that the environment counts."""

    tracing: bool | None = None
    endpoint: str | None = None
    protocol: Protocol | None = None
    ratio: float | None = None


def tracing_settings(flags: TracingFlags, environment: Mapping[str, str]) -> tuple[TracingSettings, list[str]]:
    """The settings, and warnings about variables that were ignored.

    Tracing is on if the command line says so, or if it does not say and a collector is configured. As OpenTelemetry
    demands, a variable that cannot be understood is ignored with a warning: its cluster-wide value may be meant for
    other programs.
    """
    warnings: list[str] = []
    env = _Environment(environment, warnings)
    exporter = env.first("OTEL_TRACES_EXPORTER").lower()
    if exporter not in {"", "otlp", "console", "none"}:
        warnings.append(f"OTEL_TRACES_EXPORTER={exporter} is not supported; spans are exported by OTLP")
        exporter = "otlp"
    configured = bool(env.first("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"))
    wanted = configured or exporter in {"otlp", "console"} or flags.endpoint is not None
    if exporter == "none" or env.first("OTEL_SDK_DISABLED").lower() == "true":
        wanted = False
    queue = max(env.whole("OTEL_BSP_MAX_QUEUE_SIZE", 2048), 1)
    return TracingSettings(
        enabled=wanted if flags.tracing is None else flags.tracing,
        protocol=flags.protocol or (Protocol.CONSOLE if exporter == "console" else env.protocol()),
        endpoint=flags.endpoint,
        sampler=env.sampler() if flags.ratio is None else Sampler(flags.ratio),
        max_queue_spans=queue,
        max_batch_spans=min(max(env.whole("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512), 1), queue),
        delay_s=seconds_from_milliseconds(float(max(env.whole("OTEL_BSP_SCHEDULE_DELAY", 5000), 1))),
    ), warnings


class _Environment:
    """Reads variables; an empty one counts as unset, as OpenTelemetry says."""

    def __init__(self, variables: Mapping[str, str], warnings: list[str]) -> None:
        self._variables = variables
        self._warnings = warnings

    def first(self, *names: str) -> str:
        return next((value for name in names if (value := self._variables.get(name, "").strip())), "")

    def whole(self, name: str, default: int) -> int:
        text = self.first(name)
        if text and not (text.isdecimal() and len(text) < 10):
            self._warnings.append(f"{name}={text} is not a whole number; {default} is used")
            return default
        return int(text) if text else default

    def protocol(self) -> Protocol:
        text = self.first("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
        if text in {"", Protocol.GRPC}:
            return Protocol.GRPC
        if text != Protocol.HTTP:
            self._warnings.append(f"OTEL_EXPORTER_OTLP_PROTOCOL={text} is not supported; {Protocol.HTTP} is used")
        return Protocol.HTTP

    def sampler(self) -> Sampler:
        name = self.first("OTEL_TRACES_SAMPLER").lower() or "parentbased_traceidratio"
        if name not in _SAMPLERS:
            self._warnings.append(f"OTEL_TRACES_SAMPLER={name} is not supported; parentbased_traceidratio is used")
        parent_based, ratio = _SAMPLERS.get(name, (True, None))
        return Sampler(self._ratio() if ratio is None else ratio, parent_based)

    def _ratio(self) -> float:
        text = self.first("OTEL_TRACES_SAMPLER_ARG")
        if not text:
            return DEFAULT_RATIO
        try:
            ratio = float(text)
        except ValueError:
            ratio = math.nan
        if not 0.0 <= ratio <= 1.0:
            self._warnings.append(f"OTEL_TRACES_SAMPLER_ARG={text} is not in [0, 1]; {DEFAULT_RATIO} is used")
            return DEFAULT_RATIO
        return ratio
