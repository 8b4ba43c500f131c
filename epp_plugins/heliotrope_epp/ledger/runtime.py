"""The accounts of one picker: counters always, the ledger where a folder is given for it."""

import asyncio
from collections.abc import Sequence

from prometheus_client import CollectorRegistry

from heliotrope_epp.clock import Clock
from heliotrope_epp.datalayer.store import EndpointStore
from heliotrope_epp.ledger.counters import EnergyCounters, LedgerCollector
from heliotrope_epp.ledger.ledger import Ledger
from heliotrope_epp.ledger.places import Places
from heliotrope_epp.ledger.settings import LedgerSettings
from heliotrope_epp.ledger.writer import LedgerWriter
from heliotrope_epp.outcomes.sinks import Sink


class Accounts:
    """Sinks with the threads behind them."""

    def __init__(
        self, store: EndpointStore, settings: LedgerSettings | None, clock: Clock, registry: CollectorRegistry
    ) -> None:
        places = Places(store)
        self.sinks: Sequence[Sink] = (EnergyCounters(registry, places, clock),)
        """Whom to tell of requests and intervals."""
        self._writer: LedgerWriter | None = None
        if settings is not None:
            ledger = Ledger(places, settings, clock)
            self._writer = LedgerWriter(ledger, settings, clock)
            self.sinks = (*self.sinks, ledger)
            registry.register(
                LedgerCollector(
                    self._writer.health,
                    folded=lambda: ledger.folded,
                    unwritten_seconds=lambda: 0.0 if self._writer is None else self._writer.unwritten_seconds,
                )
            )

    def start(self) -> None:
        """Begin to write.

        Raises:
            OSError: if the ledger's folder cannot be written.
        """
        if self._writer is not None:
            self._writer.start()

    async def close(self) -> None:
        """Write what is left. Whoever tells the sinks is closed before."""
        if self._writer is not None:
            await asyncio.to_thread(self._writer.stop)
