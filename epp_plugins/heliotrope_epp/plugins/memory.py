"""What a picker remembers of its recent past, for `heliotrope.decide.standing`: bounded, and nothing of a request."""

from dataclasses import dataclass
from enum import IntEnum
from math import exp
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from heliotrope.decide.candidates import BoolColumn, FloatColumn
from heliotrope.decide.choose import terms_in_use
from heliotrope.decide.policy import DecisionPolicy, Term
from heliotrope.decide.risk import TIME_CONSTANT_SECONDS, FailureCounts, failure_rates, pool_rate
from heliotrope.decide.shares import RegionShares
from heliotrope.decide.standing import Standing
from heliotrope_epp.datalayer.endpoint import EngineMetrics
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.plugins.options import Options
from heliotrope_epp.plugins.transfers_in_flight import TransfersInFlight

NAN = float("nan")
MAX_ENDPOINTS = 4_096
"""Whose outcomes are kept; the one that was heard of longest ago goes first."""


@dataclass(slots=True)
class _Preemptions:
    """An engine's own counters, and what they rose by lately, decayed."""

    preemptions: float = 0.0
    requests: float = 0.0
    as_of_s: float = 0.0
    seen: tuple[float, float] | None = None
    """Preemptions and first tokens in all, at the last look."""

    def look(self, metrics: EngineMetrics | None) -> None:
        """Take a new page; counters that fell are those of a new engine."""
        if metrics is None or metrics.preemptions_total is None or metrics.first_tokens_total is None:
            return
        now = (metrics.preemptions_total, metrics.first_tokens_total)
        if self.seen is not None and now[0] >= self.seen[0] and now[1] >= self.seen[1]:
            decay = exp(-max(metrics.scraped_s - self.as_of_s, 0.0) / TIME_CONSTANT_SECONDS)
            self.preemptions = self.preemptions * decay + now[0] - self.seen[0]
            self.requests = self.requests * decay + now[1] - self.seen[1]
        self.seen = now
        self.as_of_s = metrics.scraped_s

    def per_request(self) -> float:
        """NaN where the engine does not tell, or where too few requests came lately to tell anything."""
        return self.preemptions / self.requests if self.requests >= 1.0 else NAN


class _Line(IntEnum):
    """Line of the table of endpoints; the first three are the fields of `FailureCounts`."""

    REQUESTS = 0
    FAILURES = 1
    AS_OF_S = 2
    PREEMPTIONS = 3
    """Per request; NaN where the engine does not tell."""


class _Places:
    """Where the endpoints of the last decision stand in the table: most decisions are about the same ones."""

    def __init__(self) -> None:
        self._states: tuple[EndpointState, ...] | None = None
        self._rows: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._known: BoolColumn = np.zeros(0, dtype=np.bool_)

    def clear(self) -> None:
        """An endpoint came or went."""
        self._states = None

    def of(self, states: tuple[EndpointState, ...], rows: dict[str, int]) -> tuple[NDArray[np.intp], BoolColumn]:
        """Rows of these endpoints, 0 for those that have none, and which have one."""
        if states != self._states:
            found = np.array([rows.get(state.endpoint.key, -1) for state in states], dtype=np.intp)
            self._states, self._rows, self._known = states, np.maximum(found, 0), found >= 0
        return self._rows, self._known


class PickerMemory:
    """Follows this picker's requests. Lives on the loop's thread; every call is O(1) but `standing`, which is O(n)."""

    def __init__(self, instance: str) -> None:
        """`instance` names this picker among those of its pool."""
        self._seed = crc32(instance.encode(errors="surrogatepass"))
        self._shares = RegionShares()
        self._pool = FailureCounts()
        self._rows: dict[str, int] = {}  # the one heard of longest ago comes first
        self._free: list[int] = []
        self._preemptions: list[_Preemptions] = []
        self._table = np.zeros((len(_Line), 64))
        self._places = _Places()
        self.dropped = 0
        """Endpoints forgotten because there were too many."""
        self.transfers = TransfersInFlight()
        """Of KV, on their way."""

    @property
    def shares(self) -> RegionShares:
        """How the recent requests of enforced policies are spread over regions."""
        return self._shares

    def sent(self, state: EndpointState) -> None:
        """An enforced policy's request was sent to an endpoint."""
        self._shares.sent(state.traits.region)

    def ended(self, state: EndpointState, failed: float, now_s: float) -> None:
        """A request ended at an endpoint; `failed` is how far that is the endpoint's failure, in [0, 1]."""
        row = self._row(state.endpoint.key)
        table = self._table
        counts = FailureCounts(*table[:3, row].tolist())
        counts.ended(now_s, failed)
        table[:3, row] = counts.requests, counts.failures, counts.as_of_s
        self._pool.ended(now_s, failed)
        preemptions = self._preemptions[row]
        preemptions.look(state.metrics)
        table[_Line.PREEMPTIONS, row] = preemptions.per_request()

    def forget(self, key: str) -> None:
        """The endpoint is gone, or its engine is another one."""
        self.transfers.forget(key)
        row = self._rows.pop(key, None)
        if row is not None:
            self._places.clear()
            self._free.append(row)

    def standing(self, options: Options, policy: DecisionPolicy, now_s: float) -> Standing:
        """What the policy needs of it for a decision about these options."""
        failures = preemptions = headroom = throttled = None
        if Term.RISK in terms_in_use(policy):
            failures, preemptions = self._risks(options.states, now_s)
        if policy.power is not None:
            headroom, throttled = power_columns(options)
        return Standing(
            failure_rate=failures,
            preemptions_per_request=preemptions,
            headroom_watts=headroom,
            throttled=throttled,
            region_counts=self._shares.counts() if policy.largest_region_share < 1.0 else {},
            crowd=self.transfers.crowd(options, now_s),
            draw_seed=self._seed,
        )

    def failure_rate(self, key: str, now_s: float) -> float:
        """Of one endpoint, for metrics; NaN where none of its requests ended lately."""
        row = self._rows.get(key)
        if row is None:
            return NAN
        return FailureCounts(*self._table[:3, row].tolist()).rate(now_s, self._prior(now_s))

    def _row(self, key: str) -> int:
        row = self._rows.pop(key, None)
        if row is None:
            if len(self._rows) >= MAX_ENDPOINTS:
                self.forget(next(iter(self._rows)))
                self.dropped += 1
            self._places.clear()
            row = self._free.pop() if self._free else len(self._preemptions)
            if row == len(self._preemptions):
                self._preemptions.append(_Preemptions())
            if row == self._table.shape[1]:
                self._table = np.concatenate([self._table, np.zeros_like(self._table)], axis=1)
            self._preemptions[row] = _Preemptions()
            self._table[:, row] = 0.0
        self._rows[key] = row
        return row

    def _risks(self, states: tuple[EndpointState, ...], now_s: float) -> tuple[FloatColumn, FloatColumn]:
        rows, known = self._places.of(states, self._rows)
        table = self._table[:, rows]
        if not known.any():
            return np.full(len(states), NAN), np.full(len(states), NAN)
        prior = self._prior(now_s)
        rates = failure_rates(table[_Line.REQUESTS], table[_Line.FAILURES], now_s - table[_Line.AS_OF_S], prior)
        failures = np.where(known & np.isfinite(rates), rates, prior)
        return failures, np.where(known, table[_Line.PREEMPTIONS], NAN)

    def _prior(self, now_s: float) -> float:
        """The rate of all endpoints together."""
        return pool_rate(*self._pool.at(now_s))


def power_columns(options: Options) -> tuple[FloatColumn, FloatColumn]:
    """Watts left under the power limits, and whether an accelerator is throttled (1 or 0); NaN where unknown or old.

    A limit is what the metrics tell, else what the endpoint's variant states.
    """
    limits, told = [], []
    for state in options.states:
        metrics, limit, throttled = state.metrics, None, None
        if metrics is not None:
            limit, throttled = metrics.power_limit_watts, metrics.throttled
        if limit is None:
            limit = state.traits.power_limit_watts
        limits.append(NAN if limit is None else limit)
        told.append(NAN if throttled is None else float(throttled))
    loads = options.loads
    slowed: FloatColumn = np.where(np.isfinite(loads.running), np.array(told, dtype=np.float64), NAN)
    return np.array(limits, dtype=np.float64) - loads.power_watts, slowed
