"""Tells everyone who keeps accounts: one call per finished request, one per metered interval."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from heliotrope_epp.outcomes.energy import MeteredInterval, RequestEnergy
from heliotrope_epp.outcomes.finished import FinishedRequest

_log = logging.getLogger(__name__)


class Sink(Protocol):
    """Somebody who keeps accounts. Called on the loop's thread; must not block and must bound what it keeps."""

    def measured(self, request: FinishedRequest, energy: RequestEnergy | None) -> None:
        """A parsed request has ended and its energy is settled. Called once per routed request.

        `energy` is None where no believable counter covered it. It follows the request's end by at most
        `heliotrope_epp.metering`'s longest interval.
        """
        ...

    def metered(self, interval: MeteredInterval) -> None:
        """An endpoint's counter moved on."""
        ...


class Sinks:
    """Fans out. A sink that fails is counted and logged, and the others are told all the same."""

    def __init__(self, sinks: Sequence[Sink] = ()) -> None:
        self._sinks = list(sinks)
        self.failures: dict[str, int] = {}
        """By the sink's class name."""

    def add(self, sink: Sink) -> None:
        """Tell this one too from now on."""
        self._sinks.append(sink)

    def measured(self, request: FinishedRequest, energy: RequestEnergy | None) -> None:
        """Pass on."""
        for sink in self._sinks:
            self._tell(sink, partial(sink.measured, request, energy))

    def metered(self, interval: MeteredInterval) -> None:
        """Pass on."""
        for sink in self._sinks:
            self._tell(sink, partial(sink.metered, interval))

    def _tell(self, sink: Sink, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:  # noqa: BLE001 - one account's defect must not stop the others or the picker
            name = type(sink).__name__
            self.failures[name] = self.failures.get(name, 0) + 1
            _log.exception("%s failed; the others were told", name)
