"""Tracing as one part of the picker: built by the settings, started, and flushed at the end."""

import asyncio
import logging

from prometheus_client import CollectorRegistry

from heliotrope.errors import InvalidInputError
from heliotrope_epp.clock import Clock
from heliotrope_epp.tracing import exporters
from heliotrope_epp.tracing.energy import EnergySpans
from heliotrope_epp.tracing.export import SpanQueue
from heliotrope_epp.tracing.metrics import TraceCollector
from heliotrope_epp.tracing.settings import TracingSettings
from heliotrope_epp.tracing.spans import SpanMaker
from heliotrope_epp.tracing.tracer import Tracer

_log = logging.getLogger(__name__)


class Tracing:
    """The parts of tracing, wired."""

    def __init__(self, settings: TracingSettings, clock: Clock, registry: CollectorRegistry) -> None:
        """Build the exporter and its queue without starting either.

        Raises:
            InvalidInputError: if the exporter refuses its settings.
        """
        try:
            exporter = exporters.exporter(settings)
        except (ValueError, RuntimeError, OSError) as error:
            raise InvalidInputError("tracing", f"the exporter cannot be set up: {error}") from error
        self._settings = settings
        self.queue = SpanQueue(exporter, SpanMaker(exporters.resource()), settings)
        """Where records wait for their export."""
        registry.register(TraceCollector(self.queue.counts))
        self.tracer = Tracer(self.queue, settings.sampler, clock)
        """For the director."""
        self.energy = EnergySpans(self.queue)
        """A sink."""

    def start(self) -> None:
        """Start exporting."""
        s = self._settings
        fields = {"protocol": s.protocol.value, "ratio": s.sampler.ratio, "parent_based": s.sampler.parent_based}
        _log.info("tracing", extra={"fields": fields})
        self.queue.start()

    async def close(self) -> None:
        """Export what waits, for a bounded time."""
        await asyncio.to_thread(self.queue.close)
