"""What a run gives: times and joules of every request, energy of every site by interval and line, decisions."""

import hashlib
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from heliotrope.units import grams_co2e
from heliotrope_sim.engine.fixed_point import joules, seconds
from heliotrope_sim.fleet.topology import Topology
from heliotrope_sim.fleet.workload import Workload

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]
Float64 = NDArray[np.float64]

UNKNOWN_NS = -1
"""In times: it never happened."""


class Line(IntEnum):
    """What energy was drawn for; the lines add up to a site's IT energy."""

    PREFILL = 0
    DECODE = 1
    IDLE = 2
    """Engines with a model loaded and nothing in flight."""
    ASLEEP = 3
    """Engines that sleep, at any depth, or wake."""
    HOST = 4
    TRANSFER = 5
    """KV on its way from prefill to decode engines."""


class Ending(IntEnum):
    """How a request ended."""

    SERVED = 0
    REFUSED = 1
    """Prompt and output exceed the KV memory of the engine that it came to."""
    NOWHERE = 2
    """No allowed region was up, or none could hold it."""
    STRANDED = 3
    """It waits at a site of which no engine ever woke again."""


@dataclass(frozen=True, slots=True)
class Decisions:
    """Columns over all windows in the order of their ends."""

    scheduler: Int32
    closed_ns: Int64
    decided_ns: Int64
    requests: Int32
    """That were placed; forwarded ones that waited along are not counted."""
    work: Int64
    gap: Float64
    fell_back: NDArray[np.bool_]
    carbon_counts: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in some numbers. Latencies are of served requests; NaN where there is none."""

    requests: int
    served: int
    ttft_seconds: dict[str, float]
    """mean, p50, p90, p99."""
    tpot_seconds: dict[str, float]
    violation: float
    """Share of requests that missed their TTFT or TPOT, or were not served."""
    ttft_violation: float
    tpot_violation: float
    joules: dict[str, float]
    """IT energy by line, with the total as `total`."""
    grams: float
    """Operational CO2e with PUE; NaN where an intensity is unknown."""
    grams_by_line: dict[str, float]
    site_requests: dict[str, int]
    mean_decide_seconds: float
    """From a window's close to the end of its decision, mean over requests."""


@dataclass(frozen=True, slots=True)
class Results:
    """Everything. Request columns have length n, in the workload's order; nothing is rounded."""

    topology: Topology
    workload: Workload
    ending: Int32
    site: Int32
    """Where it was sent; -1: nowhere."""
    engine: Int32
    """Index over the engines of all sites, site by site; -1: none. With prefill and decode apart, the decode engine."""
    reason: Int32
    """`heliotrope.place.assignment.Reason`; -1: not decided."""
    window_ns: Int64
    """From arrival to the close of its window."""
    sent_ns: Int64
    """When the (first) scheduler had decided."""
    queued_ns: Int64
    """When it reached an engine's queue."""
    first_token_ns: Int64
    """At the engine; what the client sees comes half a round trip later."""
    finished_ns: Int64
    return_ns: Int64
    """Half a round trip, from its site to where it came from."""
    cached_tokens: Int32
    """Prompt tokens that needed no prefill."""
    preemptions: Int32
    picojoules: Int64
    """Its share of the steps that it took part in, and of the transfer of its KV."""
    interval_end_ns: Int64
    """Ends of the intervals that energy is summed over, the last one is the end of the run; shape (i,)."""
    energy_joules: Float64
    """IT energy, shape (i, sites, lines)."""
    intensity_g_per_kwh: Float64
    """Mean over the interval, shape (i, sites); NaN: unknown."""
    awake_engine_seconds: Float64
    """Shape (i, sites)."""
    busy_engine_seconds: Float64
    """With a step in progress; shape (i, sites)."""
    decisions: Decisions

    @property
    def served(self) -> NDArray[np.bool_]:
        """Mask of the served requests."""
        return np.asarray(self.ending == Ending.SERVED)

    @property
    def ttft_seconds(self) -> Float64:
        """From arrival at the scheduler to the first token back there; NaN where there is none."""
        ns = self.first_token_ns + self.return_ns - self.workload.arrival_ns
        return np.where(self.first_token_ns >= 0, seconds(ns), np.nan)  # type: ignore[arg-type]

    @property
    def tpot_seconds(self) -> Float64:
        """Mean time between tokens after the first; 0 where there is one token, NaN where it was not served."""
        steps = np.maximum(self.workload.output_tokens - 1, 1)
        return np.where(self.served, seconds(self.finished_ns - self.first_token_ns) / steps, np.nan)  # type: ignore[arg-type]

    @property
    def request_joules(self) -> Float64:
        """Attributed energy of each request, without idle, host and PUE."""
        return np.asarray(joules(self.picojoules))  # type: ignore[arg-type]

    @property
    def request_grams(self) -> Float64:
        """Attributed CO2e of each request: its joules with PUE at its site's intensity in the interval of its end."""
        interval = np.minimum(np.searchsorted(self.interval_end_ns, self.finished_ns), len(self.interval_end_ns) - 1)
        site = np.maximum(self.site, 0)
        pue = np.array([s.pue for s in self.topology.sites])[site]
        grams = grams_co2e(self.request_joules, pue, self.intensity_g_per_kwh[interval, site])
        return np.where(self.site >= 0, grams, 0.0)

    @property
    def ttft_violated(self) -> NDArray[np.bool_]:
        """Whether it missed its class's TTFT, or was not served."""
        slo = np.array([c.ttft_slo_seconds for c in self.workload.classes])[self.workload.class_index]
        return ~(self.ttft_seconds <= slo) | ~self.served

    @property
    def tpot_violated(self) -> NDArray[np.bool_]:
        """Whether it missed its class's TPOT, or was not served."""
        slo = np.array([c.tpot_slo_seconds for c in self.workload.classes])[self.workload.class_index]
        return ~(self.tpot_seconds <= slo)

    @property
    def violated(self) -> NDArray[np.bool_]:
        """Whether it missed either."""
        return self.ttft_violated | self.tpot_violated

    def grams(self, until_ns: int | None = None) -> Float64:
        """Operational CO2e with PUE up to an interval's end (default: of the run), shape (sites, lines)."""
        pue = np.array([site.pue for site in self.topology.sites])
        chosen = slice(None) if until_ns is None else self.interval_end_ns <= until_ns
        energy, intensity = self.energy_joules[chosen], self.intensity_g_per_kwh[chosen]
        return grams_co2e(energy, pue[None, :, None], intensity[:, :, None]).sum(axis=0)  # type: ignore[no-any-return]

    def summary(self, *, drained: bool = True, skip_seconds: float = 0.0) -> Summary:
        """The run in some numbers.

        Args:
            drained: whether energy counts up to the last request's end, or only as long as requests arrive.
            skip_seconds: leave requests that arrive before out of the latencies (energy is of the whole run).
        """
        until_ns = None if drained else self.workload.duration_ns
        chosen = seconds_mask(self.workload.arrival_ns, skip_seconds)
        grams = self.grams(until_ns)
        kept = slice(None) if until_ns is None else self.interval_end_ns <= until_ns
        by_line = self.energy_joules[kept].sum(axis=(0, 1))
        counts = np.bincount(self.site[self.site >= 0], minlength=len(self.topology.sites))
        d = self.decisions
        total = max(int(d.requests.sum()), 1)
        return Summary(
            requests=len(self.workload),
            served=int(self.served.sum()),
            ttft_seconds=_spread(self.ttft_seconds[chosen & self.served]),
            tpot_seconds=_spread(self.tpot_seconds[chosen & self.served]),
            violation=_share(self.violated[chosen]),
            ttft_violation=_share(self.ttft_violated[chosen]),
            tpot_violation=_share(self.tpot_violated[chosen]),
            joules={**{line.name.lower(): float(by_line[line]) for line in Line}, "total": float(by_line.sum())},
            grams=float(grams.sum()),
            grams_by_line={line.name.lower(): float(grams[:, line].sum()) for line in Line},
            site_requests={site.name: int(c) for site, c in zip(self.topology.sites, counts, strict=True)},
            mean_decide_seconds=float(seconds(int(((d.decided_ns - d.closed_ns) * d.requests).sum())) / total),
        )

    def trace_hash(self) -> str:
        """A digest of every time, place and picojoule: equal for equal runs on any machine."""
        digest = hashlib.sha256()
        for column in (self.ending, self.engine, self.queued_ns, self.first_token_ns, self.finished_ns):
            digest.update(np.ascontiguousarray(column, dtype="<i8").tobytes())
        digest.update(np.ascontiguousarray(self.picojoules, dtype="<i8").tobytes())
        digest.update(np.ascontiguousarray(np.rint(self.energy_joules * 1e3), dtype="<i8").tobytes())
        return digest.hexdigest()


def seconds_mask(arrival_ns: Int64, skip_seconds: float) -> NDArray[np.bool_]:
    """Requests that arrive at `skip_seconds` or later."""
    return np.asarray(seconds(arrival_ns) >= skip_seconds)  # type: ignore[arg-type]


def _spread(values: Float64) -> dict[str, float]:
    if not len(values):
        return dict.fromkeys(("mean", "p50", "p90", "p99"), float("nan"))
    p50, p90, p99 = np.quantile(values, (0.5, 0.9, 0.99))
    return {"mean": float(values.mean()), "p50": float(p50), "p90": float(p90), "p99": float(p99)}


def _share(mask: NDArray[np.bool_]) -> float:
    return float(mask.mean()) if len(mask) else float("nan")
