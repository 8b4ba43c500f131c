"""Metering as the picker uses it: the meter, what it reads, and its metrics."""

import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Any

from prometheus_client import CollectorRegistry

from heliotrope_epp.clock import Clock
from heliotrope_epp.datalayer.node_energy import NodeEnergy, NodeEnergySettings
from heliotrope_epp.datalayer.store import EndpointStore
from heliotrope_epp.metering.meter import EnergyMeter
from heliotrope_epp.metering.settings import MeteringSettings
from heliotrope_epp.metering.totals import MeteringCollector
from heliotrope_epp.outcomes.meter import NoMeter, RequestMeter
from heliotrope_epp.outcomes.sinks import Sinks
from heliotrope_epp.transport.interface import Progress


class Metering:
    """Built without starting anything; `requests` is what the director tells."""

    def __init__(
        self,
        settings: MeteringSettings,
        sinks: Sinks,
        *,
        progress: Callable[[], Sequence[Progress]],
        clock: Clock,
        registry: CollectorRegistry,
    ) -> None:
        self._meter: EnergyMeter | None = None
        self._nodes: NodeEnergy | None = None
        self.requests: RequestMeter = NoMeter(sinks)
        if not settings.enabled:
            return
        if settings.node_port is not None:
            self._nodes = nodes = NodeEnergy(
                NodeEnergySettings(settings.node_port, settings.node_path), clock=clock.monotonic, rng=random.Random()
            )
        self._meter = self.requests = meter = EnergyMeter(
            sinks,
            settings,
            progress=progress,
            node_readings=dict if self._nodes is None else lambda: nodes.readings,
            clock=clock,
        )
        registry.register(
            MeteringCollector(
                meter.totals,
                waiting=lambda: meter.waiting,
                node_failures=dict if self._nodes is None else lambda: nodes.counts.failed,
            )
        )

    async def start(self, stack: contextlib.AsyncExitStack, store: EndpointStore) -> None:
        """Begin to look; `stack` ends it, and with it every request that has ended is told."""
        if self._nodes is not None:
            await stack.enter_async_context(self._nodes)
            store.listen(self._nodes)
        if self._meter is not None:
            await stack.enter_async_context(self._meter)
            store.listen(self._meter)

    def row(self, key: str) -> dict[str, Any] | None:
        """What `/debug/state` shows of an endpoint's energy."""
        return None if self._meter is None else self._meter.row(key)
