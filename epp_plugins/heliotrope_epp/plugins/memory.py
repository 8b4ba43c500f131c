"""What a picker remembers of its recent past, for `heliotrope.decide.standing`: bounded, and nothing of a request."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp
from zlib import crc32

import numpy as np

from heliotrope.decide.candidates import FloatColumn
from heliotrope.decide.choose import terms_in_use
from heliotrope.decide.policy import DecisionPolicy, Term
from heliotrope.decide.risk import TIME_CONSTANT_SECONDS, FailureCounts, pool_rate
from heliotrope.decide.shares import RegionShares
from heliotrope.decide.standing import Standing
from heliotrope_epp.datalayer.endpoint import EngineMetrics
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.plugins.options import Options

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


@dataclass(slots=True)
class _Record:
    failures: FailureCounts = field(default_factory=FailureCounts)
    preemptions: _Preemptions = field(default_factory=_Preemptions)


class PickerMemory:
    """Follows this picker's requests. Lives on the loop's thread; every call is O(1) but `standing`, which is O(n)."""

    def __init__(self, instance: str) -> None:
        """`instance` names this picker among those of its pool."""
        self._seed = crc32(instance.encode(errors="surrogatepass"))
        self._shares = RegionShares()
        self._records: dict[str, _Record] = {}
        self.dropped = 0
        """Endpoints forgotten because there were too many."""

    @property
    def shares(self) -> RegionShares:
        """How the recent requests of enforced policies are spread over regions."""
        return self._shares

    def sent(self, state: EndpointState) -> None:
        """An enforced policy's request was sent to an endpoint."""
        self._shares.sent(state.traits.region)

    def ended(self, state: EndpointState, failed: float, now_s: float) -> None:
        """A request ended at an endpoint; `failed` is how far that is the endpoint's failure, in [0, 1]."""
        key = state.endpoint.key
        record = self._records.pop(key, None)
        if record is None:
            record = _Record()
            if len(self._records) >= MAX_ENDPOINTS:
                del self._records[next(iter(self._records))]
                self.dropped += 1
        self._records[key] = record
        record.failures.ended(now_s, failed)
        record.preemptions.look(state.metrics)

    def forget(self, key: str) -> None:
        """The endpoint is gone, or its engine is another one."""
        self._records.pop(key, None)

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
            draw_seed=self._seed,
        )

    def failure_rate(self, key: str, now_s: float) -> float:
        """Of one endpoint, for metrics; NaN where none of its requests ended lately."""
        record = self._records.get(key)
        return NAN if record is None else record.failures.rate(now_s, self._prior(now_s))

    def _risks(self, states: Sequence[EndpointState], now_s: float) -> tuple[FloatColumn, FloatColumn]:
        records = [self._records.get(state.endpoint.key) for state in states]
        prior = self._prior(now_s)
        known = [NAN if record is None else record.failures.rate(now_s, prior) for record in records]
        failures = np.array(known, dtype=np.float64)
        if np.isfinite(failures).any():
            failures[np.isnan(failures)] = prior
        preemptions = [NAN if record is None else record.preemptions.per_request() for record in records]
        return failures, np.array(preemptions, dtype=np.float64)

    def _prior(self, now_s: float) -> float:
        """The rate of all endpoints together."""
        requests = failures = 0.0
        for record in self._records.values():
            decay = exp(-max(now_s - record.failures.as_of_s, 0.0) / TIME_CONSTANT_SECONDS)
            requests += record.failures.requests * decay
            failures += record.failures.failures * decay
        return pool_rate(requests, failures)


def power_columns(options: Options) -> tuple[FloatColumn, FloatColumn]:
    """Watts left under the power limits, and whether an accelerator is throttled (1 or 0); NaN where unknown or old.

    A limit is what the metrics tell, else what the endpoint's variant states.
    """
    draw = options.loads.power_watts
    fresh = np.isfinite(options.loads.running)
    metrics = [state.metrics for state in options.states]
    limits = [
        state.traits.power_limit_watts if m is None or m.power_limit_watts is None else m.power_limit_watts
        for state, m in zip(options.states, metrics, strict=True)
    ]
    headroom = np.array([NAN if limit is None else limit for limit in limits], dtype=np.float64) - draw
    told = [NAN if m is None or m.throttled is None else float(m.throttled) for m in metrics]
    throttled: FloatColumn = np.where(fresh, np.array(told, dtype=np.float64), NAN)
    return headroom, throttled
