"""SLO goodput that is kept under a cut of power: the phase-aware split against one cap for every GPU.

    uv run python bench/power_split.py [--output build/bench/power_split.json]

PowerSlider's question on the shipped engine profiles. How clocks act on time and power is their labelled model (decode
nearly flat above its knee, prefill in inverse proportion to the clock; docs/engine-models.md), not a measurement, so
this says what the split gains if that model holds. The split sees an energy profile of seven clocks per phase, as a
calibration would write it; goodput is then judged on the step models themselves: prefill engines as queues whose mean
sojourn keeps the TTFT, decode engines at the largest batch whose step keeps the TPOT. It is arithmetic: every run
prints the same figures.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heliotrope.api.v1alpha1.common import LabelSelector, Role
from heliotrope.api.v1alpha1.workloadvariant import (
    Accelerator,
    ClockRange,
    EnergyPoint,
    Phase,
    WorkloadVariantSpec,
)
from heliotrope.engine.model import EngineModel
from heliotrope.engine.profiles import load
from heliotrope.power.latency import Promise
from heliotrope.power.options import Work, clock_options
from heliotrope.power.pools import PowerPool
from heliotrope.power.split import Split, split, uniform_cap

MEASURED_CLOCKS = 7
CUTS = (0.1, 0.2, 0.3, 0.4, 0.5)
LOADS = (0.6, 0.8, 1.0)
"""Offered requests as a share of what the fleet carries within the promise at full clocks."""
Judge = Callable[[EngineModel, Work, Promise], float]
Splitter = Callable[[Sequence[PowerPool], Mapping[str, float], float, Promise], Split]


@dataclass(frozen=True, slots=True)
class Fleet:
    """Prefill and decode engines of one model, and what is promised."""

    profile: str
    prefill: int
    decode: int
    work: Work
    promise: Promise


FLEETS: dict[str, Fleet] = {
    "8B on H100, chat": Fleet("llama-3.1-8b-h100", 2, 4, Work(2_048, 300), Promise(1.0, 0.05)),
    "8B on H100, long prompts": Fleet("llama-3.1-8b-h100", 6, 3, Work(8_192, 200), Promise(2.0, 0.05)),
    "8B on A100, chat": Fleet("llama-3.1-8b-a100-40gb", 4, 6, Work(2_048, 300), Promise(1.5, 0.06)),
    "70B on 4 H100, chat": Fleet("llama-3.1-70b-h100-tp4", 3, 4, Work(2_048, 300), Promise(2.0, 0.08)),
    "70B on 4 A100, chat": Fleet("llama-3.1-70b-a100-80gb-tp4", 4, 4, Work(2_048, 300), Promise(3.0, 0.10)),
}


def prefill_rate(engine: EngineModel, work: Work, promise: Promise) -> float:
    """Requests per second of which a prefill engine keeps the mean TTFT: S / (1 - ρ) ≤ TTFT."""
    seconds = float(engine.prefill_seconds(work.prompt_tokens))
    return max(1.0 - seconds / promise.ttft_seconds, 0.0) / seconds


def decode_rate(engine: EngineModel, work: Work, promise: Promise) -> float:
    """Requests per second of a decode engine at the largest batch whose step keeps the TPOT and that memory holds."""
    context = work.prompt_tokens + work.output_tokens / 2.0
    most = min(engine.max_num_seqs, int(engine.kv_capacity_tokens / context))
    rates = [
        batch / step / work.output_tokens
        for batch in range(1, most + 1)
        if (step := float(engine.decode_seconds(float(batch), batch * context))) <= promise.tpot_seconds
    ]
    return max(rates, default=0.0)


def usual_batch(engine: EngineModel, work: Work, promise: Promise) -> int:
    """The batch of that rate at full clock, at which the energy profile is taken."""
    context = work.prompt_tokens + work.output_tokens / 2.0
    most = min(engine.max_num_seqs, int(engine.kv_capacity_tokens / context))
    return max(
        (b for b in range(1, most + 1) if float(engine.decode_seconds(float(b), b * context)) <= promise.tpot_seconds),
        key=lambda b: b / float(engine.decode_seconds(float(b), b * context)),
        default=1,
    )


def variant(fleet: Fleet, role: Role) -> WorkloadVariantSpec:
    """A variant with an energy profile of `MEASURED_CLOCKS` clocks out of the step model."""
    engine = load(fleet.profile)
    low, high = engine.clock.max_mhz // 3, engine.clock.max_mhz
    clocks = [round(low + step * (high - low) / (MEASURED_CLOCKS - 1)) for step in range(MEASURED_CLOCKS)]
    return WorkloadVariantSpec(
        model=engine.model,
        endpoint_selector=LabelSelector(match_labels={"role": role.value}),
        role=role,
        accelerator=Accelerator(type=engine.accelerator, count=engine.tensor_parallel),
        energy_profile=tuple(point(engine.at_clock(mhz), fleet, role) for mhz in clocks),
        clock_range=ClockRange(min_mhz=low, max_mhz=high),
    )


def point(engine: EngineModel, fleet: Fleet, role: Role) -> EnergyPoint:
    """What a sweep would measure of an engine at its clock."""
    work = fleet.work
    if role is Role.PREFILL:
        tokens, seconds = work.prompt_tokens, float(engine.prefill_seconds(work.prompt_tokens))
        joules = float(engine.prefill_joules(work.prompt_tokens))
    else:
        batch = float(usual_batch(load(fleet.profile), work, fleet.promise))
        context = batch * (work.prompt_tokens + work.output_tokens / 2.0)
        tokens, seconds = batch, float(engine.decode_seconds(batch, context))
        joules = float(engine.decode_joules(batch, context))
    return EnergyPoint(
        phase=Phase(role.value),
        sm_clock_mhz=engine.clock_mhz,
        tokens_per_second=tokens / seconds,
        joules_per_token=joules / tokens,
        watts=round(joules / seconds),
    )


def pools(fleet: Fleet) -> list[PowerPool]:
    """The fleet as the operator would see it."""
    return [
        PowerPool(role.value, "model", role, count, clock_options(variant(fleet, role), fleet.work))
        for role, count in ((Role.PREFILL, fleet.prefill), (Role.DECODE, fleet.decode))
    ]


def judged(fleet: Fleet, clocks: Mapping[str, int], offered: float) -> float:
    """Requests per second within the promise at these clocks, by the step models."""
    engine = load(fleet.profile)
    carried = min(
        fleet.prefill * prefill_rate(engine.at_clock(clocks["prefill"]), fleet.work, fleet.promise),
        fleet.decode * decode_rate(engine.at_clock(clocks["decode"]), fleet.work, fleet.promise),
    )
    return min(carried, offered)


def study(fleet: Fleet) -> dict[str, Any]:
    """Goodput kept by both for every cut and load, as a share of the offered requests."""
    seen = pools(fleet)
    full = {pool.name: pool.options[-1].sm_clock_mhz for pool in seen}
    most = judged(fleet, full, float("inf"))
    full_watts = sum(pool.replicas * pool.options[-1].watts for pool in seen)
    rows = []
    for load_share in LOADS:
        offered = load_share * most
        for cut in CUTS:
            row: dict[str, Any] = {"load": load_share, "cut": cut, "budget_watts": round((1 - cut) * full_watts)}
            for name, way in (("phase_aware", split), ("uniform_cap", uniform_cap)):
                found = outcome(way, seen, offered, (1 - cut) * full_watts, fleet.promise)
                clocks = {pool.name: found.shares[pool.name].sm_clock_mhz for pool in seen}
                row[name] = {
                    "kept": round(judged(fleet, clocks, offered) / offered, 4),
                    "watts": round(found.projected_watts),
                    "clocks_mhz": clocks,
                    "verdict": found.verdict.value,
                }
            rows.append(row)
    return {
        "requests_per_second_at_full_clocks": round(most, 3),
        "watts_at_full_clocks": round(full_watts),
        "rows": rows,
    }


def outcome(way: Splitter, seen: Sequence[PowerPool], offered: float, watts: float, promise: Promise) -> Split:
    """One way's answer to a budget."""
    return way(seen, {"model": offered}, watts, promise)


def summary(results: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a 30 % cut at full load, and the mean over all fleets and loads by cut."""
    mean: dict[str, dict[str, float]] = {}
    for cut in CUTS:
        rows = [row for found in results.values() for row in found["rows"] if row["cut"] == cut]
        mean[str(cut)] = {
            name: round(sum(row[name]["kept"] for row in rows) / len(rows), 4)
            for name in ("phase_aware", "uniform_cap")
        }
    at_thirty = {
        name: {way: row[way]["kept"] for way in ("phase_aware", "uniform_cap")}
        for name, found in results.items()
        for row in found["rows"]
        if (row["cut"], row["load"]) == (0.3, 1.0)
    }
    return {"kept_under_a_30_percent_cut_at_full_load": at_thirty, "mean_kept_by_cut": mean}


def main() -> None:
    """Study all fleets and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("build/bench/power_split.json"))
    arguments = parser.parse_args()
    results = {name: study(fleet) for name, fleet in FLEETS.items()}
    document = {"model": "labelled DVFS model of the shipped engine profiles", **summary(results), "fleets": results}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(f"{'fleet':28} {'load':>5} {'cut':>4} {'phase-aware':>12} {'uniform cap':>12}")
    for name, found in results.items():
        for row in found["rows"]:
            if row["cut"] == 0.3:
                kept = [f"{row[way]['kept']:.1%}" for way in ("phase_aware", "uniform_cap")]
                print(f"{name:28} {row['load']:5.0%} {row['cut']:4.0%} {kept[0]:>12} {kept[1]:>12}")
    print(json.dumps(document["mean_kept_by_cut"]))
    print(f"wrote {arguments.output}")


if __name__ == "__main__":
    main()
