"""What one run gives: plain numbers, small enough to be kept and sent."""

from dataclasses import dataclass, field
from math import isnan, nan

import numpy as np
from numpy.typing import NDArray

from heliotrope_sim.engine.fixed_point import seconds
from heliotrope_sim.fleet.results import Ending, Line, Results

Float64 = NDArray[np.float64]
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
TIME_BINS = 60
"""Of what is drawn over time."""


@dataclass(frozen=True, slots=True)
class OverTime:
    """For plots. Columns are sites."""

    ends_seconds: tuple[float, ...]
    requests: tuple[tuple[int, ...], ...]
    """That arrived in each bin and were sent to each site."""
    intensity_ends_seconds: tuple[float, ...]
    intensity_g_per_kwh: tuple[tuple[float, ...], ...]
    """NaN: unknown."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One policy at one point. NaN is unknown."""

    policy: str
    scheduler: str
    requests: int
    served: int
    endings: dict[str, int]
    violation: float
    """Share that missed TTFT or TPOT or was not served."""
    ttft_violation: float
    tpot_violation: float
    ttft_seconds: dict[str, float]
    """mean, p50, p95, p99 of served requests."""
    tpot_seconds: dict[str, float]
    joules: dict[str, float]
    """IT energy by line, and `total`."""
    grams: float
    """Operational CO2e with PUE; NaN where the intensity of any hour with energy is unknown."""
    grams_by_line: dict[str, float]
    grams_by_site: dict[str, float]
    joules_without_intensity: float
    """IT energy in hours whose intensity is unknown: in no grams."""
    site_requests: dict[str, int]
    windows: int
    fell_back: int
    """Windows in which the solver found nothing."""
    without_carbon: int
    """Windows in which carbon did not count, because an intensity was unknown."""
    mean_gap: float
    mean_decide_seconds: float
    end_seconds: float
    """When the last answer had ended, to which energy counts."""
    digest: str
    """Of every time, place and picojoule: equal for equal runs on any machine."""
    over_time: OverTime = field(repr=False)
    trace: str | None = field(default=None, repr=False)
    """For Perfetto, where it was asked for."""


def outcome(policy: str, scheduler: str, results: Results, warm_up_seconds: float, trace: str | None) -> Outcome:
    """Of a run; requests before the warm-up's end are in no latency and no violation."""
    summary = results.summary(skip_seconds=warm_up_seconds)
    chosen = (seconds(results.workload.arrival_ns) >= warm_up_seconds) & results.served  # type: ignore[arg-type]
    grams = results.grams()
    energy = results.energy_joules
    unknown = np.isnan(results.intensity_g_per_kwh)
    decisions = results.decisions
    gaps = decisions.gap[~np.isnan(decisions.gap)]
    names = [site.name for site in results.topology.sites]
    return Outcome(
        policy=policy,
        scheduler=scheduler,
        requests=summary.requests,
        served=summary.served,
        endings={each.name.lower(): int((results.ending == each).sum()) for each in Ending},
        violation=summary.violation,
        ttft_violation=summary.ttft_violation,
        tpot_violation=summary.tpot_violation,
        ttft_seconds=_spread(results.ttft_seconds[chosen]),
        tpot_seconds=_spread(results.tpot_seconds[chosen]),
        joules=dict(summary.joules),
        grams=summary.grams,
        grams_by_line=dict(summary.grams_by_line),
        grams_by_site={name: float(grams[i].sum()) for i, name in enumerate(names)},
        joules_without_intensity=float(energy.sum(axis=2)[unknown].sum()),
        site_requests=dict(summary.site_requests),
        windows=len(decisions.requests),
        fell_back=int(decisions.fell_back.sum()),
        without_carbon=int((~decisions.carbon_counts).sum()),
        mean_gap=float(gaps.mean()) if len(gaps) else nan,
        mean_decide_seconds=summary.mean_decide_seconds,
        end_seconds=float(seconds(int(results.interval_end_ns[-1]))),
        digest=results.trace_hash(),
        over_time=_over_time(results),
        trace=trace,
    )


def joule_lines() -> tuple[str, ...]:
    """Lines of energy, in their order."""
    return tuple(line.name.lower() for line in Line)


def saving(ours: float, baseline: float) -> float:
    """1 − ours / baseline; NaN where either is unknown or the baseline is nothing."""
    return nan if isnan(ours) or not baseline > 0.0 else 1.0 - ours / baseline


def _spread(values: Float64) -> dict[str, float]:
    values = values[~np.isnan(values)]
    if not len(values):
        return dict.fromkeys(("mean", *QUANTILES), nan)
    found = np.quantile(values, tuple(QUANTILES.values()))
    return {"mean": float(values.mean())} | {name: float(v) for name, v in zip(QUANTILES, found, strict=True)}


def _over_time(results: Results) -> OverTime:
    edges = np.linspace(0.0, float(results.workload.duration_ns), TIME_BINS + 1)
    counts = np.stack(
        [
            np.histogram(results.workload.arrival_ns[results.site == i], bins=edges)[0]
            for i in range(len(results.topology.sites))
        ],
        axis=1,
    )
    return OverTime(
        ends_seconds=tuple(float(seconds(int(end))) for end in edges[1:]),
        requests=tuple(tuple(row) for row in counts.tolist()),
        intensity_ends_seconds=tuple(float(seconds(int(end))) for end in results.interval_end_ns),
        intensity_g_per_kwh=tuple(tuple(row) for row in results.intensity_g_per_kwh.tolist()),
    )
