"""The risk R of equation 6: that a request fails at an endpoint, or that what was computed for it is thrown away.

    R = 1 − (1 − p_fail) · (1 − p_recompute),    p_recompute = max(memory pressure, preemptions per request)

p_fail is the endpoint's recent share of failed requests (`FailureCounts`). A preempted request is prefilled again, so
preemptions per request of late estimate its chance of one; as they come only after memory has run out, the share of KV
memory in use once this request is in adds a warning: 0 up to `PRESSURE_FROM`, 1 when it is full.

Unknown is not zero: a picker believes of an endpoint that it has not used lately what it knows of the pool
(`pool_rate`); what it cannot know of one endpoint is taken to be the mean of the others. Where nothing is known of any,
that part is left out; where no part is known, risk is unknown and drops out of the decision.
"""

from dataclasses import dataclass
from math import exp

import numpy as np

from heliotrope.decide.candidates import Candidates, FloatColumn
from heliotrope.decide.request import RequestProfile
from heliotrope.decide.standing import Standing, of_rows

PRESSURE_FROM = 0.9
"""Share of KV memory from which evictions become likely."""
TIME_CONSTANT_SECONDS = 120.0
"""Outcomes count e^(−age / this)."""
PRIOR_REQUESTS = 4.0
"""Weight of the pool's rate against an endpoint's own requests, so that one failure in one request is no certainty."""
LEAST_REQUESTS = 0.1
"""Fewer, decayed, tell nothing of an endpoint."""
USUAL_RATE = 0.01
USUAL_REQUESTS = 20.0
"""What is expected of a pool before anything is seen of it, and its weight: one failing endpoint is no failing pool."""


def risk(request: RequestProfile, candidates: Candidates, standing: Standing) -> FloatColumn:
    """R of each plan, in [0, 1]; NaN for all where nothing is known."""
    n = len(candidates)
    known = False
    survives = np.ones(n)
    failure = of_rows(standing.failure_rate, candidates)
    if failure is not None and np.isfinite(failure).any():
        survives *= 1.0 - np.clip(_filled(failure), 0.0, 1.0)
        known = True
    pairs = candidates.pairs
    if pairs is not None and pairs.failure_rate is not None and np.isfinite(pairs.failure_rate).any():
        # Where a prompt is prefilled elsewhere, the request fails with either of the two.
        survives[-len(pairs) :] *= 1.0 - np.clip(_filled(pairs.failure_rate), 0.0, 1.0)
        known = True
    after = candidates.kv_tokens + candidates.waiting_tokens + request.prompt_tokens + request.expected_output_tokens
    pressure = np.clip((after / candidates.kv_capacity_tokens - PRESSURE_FROM) / (1.0 - PRESSURE_FROM), 0.0, 1.0)
    preemptions = of_rows(standing.preemptions_per_request, candidates)
    recompute = pressure if preemptions is None else np.fmax(pressure, np.clip(preemptions, 0.0, 1.0))
    if np.isfinite(recompute).any():
        survives *= 1.0 - _filled(recompute)
        known = True
    result: FloatColumn = 1.0 - survives if known else np.full(n, np.nan)
    return result


def _filled(column: FloatColumn) -> FloatColumn:
    """Unknown values as the mean of the known ones, of which there is at least one."""
    finite = np.isfinite(column)
    if finite.all():
        return column
    filled: FloatColumn = np.where(finite, column, column[finite].mean())
    return filled


def pool_rate(requests: float, failures: float) -> float:
    """Chance of failure in a pool with these decayed counts: what is believed of an endpoint that nobody has tried."""
    return (failures + USUAL_REQUESTS * USUAL_RATE) / (requests + USUAL_REQUESTS)


def failure_rates(requests: FloatColumn, failures: FloatColumn, age_seconds: FloatColumn, prior: float) -> FloatColumn:
    """`FailureCounts.rate` of many endpoints at once, their counts being of `age_seconds` ago."""
    decay = np.exp(-np.maximum(age_seconds, 0.0) / TIME_CONSTANT_SECONDS)
    counted = requests * decay
    rates = (failures * decay + PRIOR_REQUESTS * prior) / (counted + PRIOR_REQUESTS)
    rates[counted < LEAST_REQUESTS] = np.nan
    return rates


@dataclass(slots=True)
class FailureCounts:
    """Exponentially decayed outcomes of one endpoint: two numbers, whatever the traffic."""

    requests: float = 0.0
    failures: float = 0.0
    as_of_s: float = 0.0

    def ended(self, now_s: float, failed: float) -> None:
        """A request ended; `failed` is how far that is the endpoint's failure, in [0, 1]."""
        self._decay(now_s)
        self.requests += 1.0
        self.failures += failed

    def rate(self, now_s: float, prior: float) -> float:
        """Chance that the next one fails: the endpoint's share, drawn towards `prior` while there are few requests.

        NaN where there were (almost) none lately.
        """
        requests, failures = self.at(now_s)
        if requests < LEAST_REQUESTS:
            return float("nan")
        return (failures + PRIOR_REQUESTS * prior) / (requests + PRIOR_REQUESTS)

    def at(self, now_s: float) -> tuple[float, float]:
        """Requests and failures as they count now."""
        decay = exp(-max(now_s - self.as_of_s, 0.0) / TIME_CONSTANT_SECONDS)
        return self.requests * decay, self.failures * decay

    def _decay(self, now_s: float) -> None:
        self.requests, self.failures = self.at(now_s)
        self.as_of_s = max(now_s, self.as_of_s)
