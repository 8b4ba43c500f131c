"""What a run comes to: the metric vector and everything that §7 wants beside it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from heliotrope.cache.action import KvAction
from heliotrope.carbon.bootstrap import Interval, block_bootstrap, relative_change_of_ratios
from heliotrope.carbon.footprint import embodied_grams, hardware_cost
from heliotrope.goodput import Goodput, Spent, goodput, slo_tokens
from heliotrope.units import grams_co2e, kwh_from_joules, liters_from_it_kwh
from heliotrope_sim.engine.fixed_point import seconds
from heliotrope_sim.reproduce.roadmap.cluster import Outcome, Served
from heliotrope_sim.reproduce.roadmap.picker import QUALITY_FLOOR, true_quality
from heliotrope_sim.reproduce.roadmap.testbed import MODEL_70B, REGIONS, EndpointSpec

Floats = NDArray[np.float64]
RESAMPLES = 1_000


@dataclass(frozen=True, slots=True)
class Measured:
    """One run. Arrays have one value per request."""

    tokens: float
    """G_SLO."""
    spent: Spent
    """By the whole fleet: steps and transfers to the end, standing power, host, rent and making for as long as load is
    offered, or as an endpoint is busy where that is longer."""
    working_joules: float
    """Of steps and transfers."""
    working_grams: float
    transfer_joules: float
    used_embodied_grams: float
    """Of the endpoints for the time that they were busy."""
    ttft_seconds: Floats = field(repr=False)
    """NaN: it was not served; so for the next two."""
    tpot_seconds: Floats = field(repr=False)
    end_to_end_seconds: Floats = field(repr=False)
    quality: Floats = field(repr=False)
    kept: NDArray[np.bool_] = field(repr=False)
    """All promises."""
    hit_rate: float
    """Prompt tokens that nobody computed for the request."""
    utilisation: float
    """Share of the time in which a step ran."""
    watts: float
    """Mean of the run."""
    input_tokens_per_second: float
    output_tokens_per_second: float
    shares: Mapping[str, float]
    """Of requests: pulled KV, reloaded KV, prefilled elsewhere, encoded elsewhere, answered by the small model."""
    features: Floats = field(repr=False)
    """Rows of learned models, of requests that have one, shape (m, F); the next five are theirs."""
    labels: Floats = field(repr=False)
    """TTFT, TPOT, joules, output tokens: shape (m, 4)."""
    believed: Floats = field(repr=False)
    """TTFT and joules as estimated, shape (m, 2)."""


def measure(outcome: Outcome, specs: Sequence[EndpointSpec], intensity: Floats, offered_seconds: float) -> Measured:
    """Everything of a run.

    Args:
        outcome: the run.
        specs: its endpoints.
        intensity: gCO2e/kWh of the regions, mean over the time that load was offered.
        offered_seconds: that time.
    """
    served = outcome.served
    done = np.array([s.finished_ns is not None for s in served])
    arrived = np.array([seconds(s.arrived_ns) for s in served])
    first = np.array([np.nan if s.first_token_ns is None else seconds(s.first_token_ns) for s in served])
    last = np.array([np.nan if s.finished_ns is None else seconds(s.finished_ns) for s in served])
    output = np.array([float(s.arrival.output_tokens) for s in served])
    prompt = np.array([float(s.arrival.prompt_tokens) for s in served])
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot = np.where(output > 1.0, (last - first) / (output - 1.0), np.nan)
    models = [None if s.chosen is None else specs[s.chosen.endpoint].model.model for s in served]
    quality = np.array(
        [np.nan if m is None else true_quality(s.arrival.difficulty, m) for s, m in zip(served, models, strict=True)]
    )
    routed = any(spec.model.model == MODEL_70B for spec in specs)
    least = np.array(
        [QUALITY_FLOOR * true_quality(s.arrival.difficulty, MODEL_70B) if routed else np.nan for s in served]
    )
    tokens, kept = slo_tokens(
        np.where(done, output, np.nan),
        first - arrived,
        tpot,
        quality,
        ttft_slo_seconds=np.array([s.arrival.kind.ttft_slo_seconds for s in served]),
        tpot_slo_seconds=np.array([s.arrival.kind.tpot_slo_seconds for s in served]),
        least_quality=least,
    )
    busy = outcome.busy_seconds
    drawn = outcome.drawn
    estimated = [
        s for s in served if s.finished_ns is not None and s.chosen is not None and s.chosen.features is not None
    ]
    cached = np.array([float(s.cached_tokens) for s in served])
    return Measured(
        tokens=tokens,
        spent=_spent(outcome, specs, intensity, offered_seconds),
        working_joules=float(drawn.busy.sum() + drawn.transfer.sum()),
        working_grams=drawn.working_grams,
        transfer_joules=float(drawn.transfer.sum()),
        used_embodied_grams=sum(
            embodied_grams(spec.hardware.embodied.grams_co2e, spec.hardware.embodied.lifetime_seconds, float(used))
            for spec, used in zip(specs, busy, strict=True)
        ),
        ttft_seconds=first - arrived,
        tpot_seconds=tpot,
        end_to_end_seconds=last - arrived,
        quality=quality,
        kept=kept,
        hit_rate=float(cached[done].sum() / prompt[done].sum()) if done.any() else float("nan"),
        utilisation=float(busy.sum() / np.maximum(busy, offered_seconds).sum()),
        watts=float((drawn.busy + drawn.idle + drawn.host + drawn.transfer).sum() / outcome.seconds),
        input_tokens_per_second=float(prompt[done].sum() / outcome.seconds),
        output_tokens_per_second=float(output[done].sum() / outcome.seconds),
        shares=_shares(served, specs),
        features=np.array([s.chosen.features for s in estimated if s.chosen is not None]),
        labels=np.array([_labels(s) for s in estimated]),
        believed=np.array(
            [(s.chosen.believed_ttft_seconds, s.chosen.believed_joules) for s in estimated if s.chosen is not None]
        ),
    )


def _spent(outcome: Outcome, specs: Sequence[EndpointSpec], intensity: Floats, offered_seconds: float) -> Spent:
    names = [region.name for region in REGIONS]
    standing = np.zeros(len(REGIONS))
    embodied = cost = 0.0
    for spec, busy in zip(specs, outcome.busy_seconds.tolist(), strict=True):
        held = max(offered_seconds, busy)
        model = spec.model
        standing[names.index(spec.region.name)] += model.idle_watts * (held - busy) + model.host_watts * held
        life = spec.hardware.embodied
        embodied += embodied_grams(life.grams_co2e, life.lifetime_seconds, held)
        cost += hardware_cost(spec.hardware.price_per_hour, held)
    working = outcome.drawn.busy + outcome.drawn.transfer
    pue = np.array([region.pue for region in REGIONS])
    water = np.array([region.wue_l_per_kwh for region in REGIONS])
    return Spent(
        joules=float((working + standing).sum()),
        operational_grams=outcome.drawn.working_grams + float(grams_co2e(standing, pue, intensity).sum()),
        embodied_grams=embodied,
        water_liters=float(liters_from_it_kwh(kwh_from_joules(working + standing), water).sum()),
        cost=cost,
    )


def _shares(served: Sequence[Served], specs: Sequence[EndpointSpec]) -> dict[str, float]:
    chosen = [s.chosen for s in served if s.chosen is not None]
    n = max(len(chosen), 1)
    return {
        "pulled": sum(c.source is not None for c in chosen) / n,
        "reloaded": sum(c.action is KvAction.OFFLOAD_RELOAD for c in chosen) / n,
        "prefilled elsewhere": sum(c.prefill is not None for c in chosen) / n,
        "encoded elsewhere": sum(bool(c.encoders) for c in chosen) / n,
        "small model": sum(specs[c.endpoint].model.model != MODEL_70B for c in chosen) / n,
    }


def _labels(served: Served) -> tuple[float, float, float, float]:
    assert served.first_token_ns is not None
    assert served.finished_ns is not None
    tokens = served.arrival.output_tokens
    tpot = seconds(served.finished_ns - served.first_token_ns) / (tokens - 1) if tokens > 1 else float("nan")
    return seconds(served.first_token_ns - served.arrived_ns), tpot, served.joules, float(tokens)


def vector(runs: Sequence[Measured]) -> Goodput:
    """Of several runs together."""
    return goodput(
        sum(run.tokens for run in runs),
        Spent(
            joules=sum(run.spent.joules for run in runs),
            operational_grams=sum(run.spent.operational_grams for run in runs),
            embodied_grams=sum(run.spent.embodied_grams for run in runs),
            water_liters=sum(run.spent.water_liters for run in runs),
            cost=sum(run.spent.cost for run in runs),
        ),
    )


def quantile(runs: Sequence[Measured], column: str, q: float) -> float:
    """Of a latency over all served requests; NaN where there is none."""
    values = np.concatenate([getattr(run, column) for run in runs])
    values = values[np.isfinite(values)]
    return float(np.quantile(values, q)) if len(values) else float("nan")


def share_kept(runs: Sequence[Measured]) -> float:
    """Of requests whose promises were all kept."""
    return float(np.concatenate([run.kept for run in runs]).mean())


def success(runs: Sequence[Measured]) -> float:
    """Of requests that were answered."""
    return float(np.isfinite(np.concatenate([run.end_to_end_seconds for run in runs])).mean())


def change(a: Sequence[Measured], b: Sequence[Measured], amount: str, seed: int) -> Interval:
    """By how much arm a spends more than arm b per token of goodput; runs of equal seeds are drawn together.

    Args:
        a: by seed.
        b: by the same seeds.
        amount: `joules`, `grams`, `water_liters` or `cost` of the fleet; or a field such as `working_grams`.
        seed: of the bootstrap.
    """
    columns = [(_amount(x, amount), x.tokens, _amount(y, amount), y.tokens) for x, y in zip(a, b, strict=True)]
    return block_bootstrap(np.array(columns), relative_change_of_ratios, resamples=RESAMPLES, seed=seed)


def _amount(run: Measured, name: str) -> float:
    return float(getattr(run.spent if hasattr(run.spent, name) else run, name))
