"""The ledger's part on the event loop: adds up what was counted until the writer takes it."""

import threading
from math import isfinite

from heliotrope.units import SECONDS_PER_HOUR
from heliotrope_epp.clock import Clock
from heliotrope_epp.labels import LabelCap
from heliotrope_epp.ledger.entries import Entry, RequestLabels, interval_entries, request_entries
from heliotrope_epp.ledger.places import Places
from heliotrope_epp.ledger.rows import Amounts, Key, Line, Site
from heliotrope_epp.ledger.settings import LedgerSettings
from heliotrope_epp.outcomes.energy import MeteredInterval, RequestEnergy
from heliotrope_epp.outcomes.finished import FinishedRequest

Batch = dict[Key, Amounts]


class Ledger:
    """A `Sink`. Each call is booked whole or, with the batch that it is part of, not at all."""

    def __init__(self, places: Places, settings: LedgerSettings, clock: Clock) -> None:
        self._places = places
        self._clock = clock
        self._slot_seconds = settings.slot_seconds
        self._max_rows = settings.max_rows
        self._models = LabelCap(settings.max_labels)
        self._tenants = LabelCap(settings.max_labels)
        self._classes = LabelCap(settings.max_labels)
        self._lock = threading.Lock()
        self._pending: Batch = {}
        self._pending_since_s: float | None = None
        self.folded = 0
        """Entries that lost their own row because too many rows were waiting."""

    def measured(self, request: FinishedRequest, energy: RequestEnergy | None) -> None:
        """Book a finished request."""
        now = self._clock.unix()
        labels = RequestLabels(
            model=self._models.of(request.model),
            asked_model=self._models.of(request.asked_model or request.model),
            tenant=self._tenants.of(request.tenant),
            request_class=self._classes.of(request.request_class),
        )
        at = [(request.region, request.variant)]
        if energy is not None:
            at = [
                (share.region, share.variant)
                for share in energy.by_engine(request.endpoint, request.region, request.variant)
            ]
        places = [self._places.of(region, variant, now) for region, variant in at]
        self._book(request_entries(request, energy, places, labels, self._slot_seconds, now))

    def metered(self, interval: MeteredInterval) -> None:
        """Book an interval's lines."""
        now = self._clock.unix()
        place = self._places.of(interval.region, interval.variant, now)
        self._book(interval_entries(interval, place, self._slot_seconds, now))

    def take(self) -> Batch:
        """Everything booked since the last call. Called by the writer's thread."""
        with self._lock:
            batch, self._pending = self._pending, {}
            self._pending_since_s = None
        return batch

    @property
    def waiting_seconds(self) -> float:
        """How long the oldest entry has waited to be taken; 0 if none waits."""
        since = self._pending_since_s
        return 0.0 if since is None else max(self._clock.monotonic() - since, 0.0)

    def _book(self, entries: list[Entry]) -> None:
        with self._lock:
            if self._pending_since_s is None and entries:
                self._pending_since_s = self._clock.monotonic()
            for key, amounts in entries:
                known = self._pending.get(key)
                if known is None and len(self._pending) >= self._max_rows:
                    self.folded += 1
                    key = _folded(key)  # noqa: PLW2901 - the same amounts under another key
                    amounts = _kept(amounts)  # noqa: PLW2901
                    known = self._pending.get(key)
                if known is None:
                    self._pending[key] = amounts
                else:
                    known.add(amounts)


def _folded(key: Key) -> Key:
    """The row that stands for all that have no room: one per region, hour and whether the host is in it."""
    hour = int(key.slot_unix_s // SECONDS_PER_HOUR * SECONDS_PER_HOUR)
    return Key(
        hour,
        Line.UNRECORDED,
        key.region,
        None,
        Site(pue=key.site.pue),
        signal=None,
        boundary=key.boundary,
        measured=key.measured,
    )


def _kept(amounts: Amounts) -> Amounts:
    """Energy and counts; grams have lost their meaning with their row."""
    amounts.grams_co2e = 0.0
    if not isfinite(amounts.host_joules):
        amounts.host_joules = 0.0
    return amounts
