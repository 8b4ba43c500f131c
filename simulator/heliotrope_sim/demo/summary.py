"""The figures of an arm, of both side by side, and of those without a lever."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from heliotrope.carbon.savings import wording
from heliotrope.units import milliseconds_from_seconds
from heliotrope_sim.demo.ablation import attribution
from heliotrope_sim.demo.arm import ArmName, ArmState
from heliotrope_sim.demo.joules import relative_errors
from heliotrope_sim.demo.reuse import reuse
from heliotrope_sim.demo.scenario import Scenario


def arm_summary(state: ArmState, scenario: Scenario) -> dict[str, Any]:
    """One arm in plain numbers; see `docs/demo.md` for each key."""
    regions = state.energy(scenario)
    failed = sum(r.failed for r in state.results) + state.unfinished
    violations = sum(r.violates(scenario.ttft_slo_seconds, scenario.tpot_slo_seconds) for r in state.results)
    ttft = [r.ttft_seconds for r in state.results if r.ttft_seconds is not None and not r.failed]
    tpot = [r.tpot_seconds for r in state.results if r.tpot_seconds is not None and not r.failed]
    served = Counter(state.region_of(r) or "unknown" for r in state.results if not r.failed)
    shares = {region.name: _batch_share(state, scenario, region.name) for region in scenario.regions}
    engines = {region.name: region.engines for region in scenario.regions}
    return {
        "requests": state.planned,
        "failed": failed,
        "after_horizon": state.after_horizon,
        "slo_violations": violations + state.unfinished,
        "joules": sum(e.joules for e in regions.values()),
        "grams_co2e": sum(e.grams_co2e for e in regions.values()),
        "ttft_p50_ms": _percentile_ms(ttft, 50),
        "ttft_p95_ms": _percentile_ms(ttft, 95),
        "tpot_p95_ms": _percentile_ms(tpot, 95),
        "output_tokens": sum(r.output_tokens for r in state.results),
        **reuse(state.results),
        "regions": {
            name: {
                "requests": served.get(name, 0),
                "accelerator_joules": energy.accelerator_joules,
                "host_joules": energy.host_joules,
                "grams_co2e": energy.grams_co2e,
                "mean_batch_share": shares[name],
            }
            for name, energy in regions.items()
        },
        "mean_batch_share": sum(shares[name] * count for name, count in engines.items()) / sum(engines.values()),
    }


def _batch_share(state: ArmState, scenario: Scenario, region: str) -> float:
    """Mean batch over the batch limit while requests arrive and the fleet has filled up."""
    start_s = state.start_s + scenario.ramp_seconds
    running = state.meter.mean_running(region, start_s, state.start_s + scenario.arrival_seconds)
    return running / scenario.max_num_seqs


def reasons(state: ArmState) -> dict[str, Any]:
    """Why requests went where they went: what decided, why cleaner regions were passed over, where KV came from."""
    decided: dict[str, Counter[str]] = {}
    passed_over: dict[str, Counter[str]] = {}
    kv_actions: Counter[str] = Counter()
    for decision in state.decisions:
        carbon = decision.get("carbon_decision")
        if not carbon or carbon["endpoint"] is None:
            continue
        rows = carbon["candidates"]
        chosen = next(row for row in rows if row["chosen"])
        decided.setdefault(chosen["region"] or "unknown", Counter())[carbon["decided_by"]] += 1
        kv_actions[chosen["kv_action"]] += 1
        for region, loss in _cleaner_but_lost(rows, chosen).items():
            passed_over.setdefault(region, Counter())[loss] += 1
    return {
        "decided_by": {region: dict(counts) for region, counts in decided.items()},
        "cleaner_region_passed_over_because": {region: dict(counts) for region, counts in passed_over.items()},
        "kv_actions": dict(kv_actions),
    }


def summary(states: Sequence[ArmState], scenario: Scenario, capacity_requests_per_second: float) -> dict[str, Any]:
    """Both arms, Heliotrope relative to round robin if both ran, and what each lever that an arm lacked is worth."""
    arms = {state.arm.key: arm_summary(state, scenario) for state in states if state.arm.without is None}
    result: dict[str, Any] = {"arms": arms}
    if len(arms) == len(ArmName):
        base, ours = arms[ArmName.ROUND_ROBIN.value], arms[ArmName.HELIOTROPE.value]
        result["ratio"] = {key: ours[key] / base[key] for key in ("joules", "grams_co2e")}
        without = {s.arm.without: arm_summary(s, scenario) for s in states if s.arm.without is not None}
        if without:
            result["ablations"] = attribution(base, ours, without)
    result["emulation"] = {
        state.arm.key: {"mean_step_lateness_ms": milliseconds_from_seconds(state.meter.mean_lateness_seconds())}
        for state in states
    }
    result["scenario"] = _scenario(scenario, capacity_requests_per_second)
    result["reasons"] = {s.arm.key: reasons(s) for s in states if s.decisions}
    result["conservation"] = {
        state.arm.key: {
            "counted_millijoules": books.counted,
            **{f"{line}_millijoules": value for line, value in books.lines.items()},
            "difference_millijoules": books.difference,
            "outside_millijoules": books.outside,
            "readings_hold": books.readings_hold,
        }
        for state in states
        if (books := state.conservation) is not None
    }
    result["joules_per_request"] = {
        state.arm.key: {
            "estimated_against_attributed": relative_errors([(r.estimated, r.attributed) for r in state.joules]),
            "attributed_against_true": relative_errors([(r.attributed, r.true) for r in state.joules]),
        }
        for state in states
        if state.joules
    }
    result["accounting"] = {
        "boundary": "operational; accelerators and hosts, idle included",
        "signal": "average, lifecycle",
        "source": "recorded Electricity Maps series of 2022 (ODbL)"
        if scenario.constant_intensities is None
        else "constant",
        "savings": wording(holdout=False, because="engines are emulated"),
    }
    return result


def _scenario(scenario: Scenario, capacity: float) -> dict[str, Any]:
    return {
        "profile": scenario.profile,
        "engines": sum(r.engines for r in scenario.regions),
        "max_num_seqs": scenario.max_num_seqs,
        "capacity_requests_per_second": capacity,
        "offered_requests_per_second": scenario.load * capacity,
        "cleanest_region_capacity_requests_per_second": capacity
        * max(r.engines for r in scenario.regions)
        / sum(r.engines for r in scenario.regions),
        "ttft_slo_ms": milliseconds_from_seconds(scenario.ttft_slo_seconds),
        "tpot_slo_ms": milliseconds_from_seconds(scenario.tpot_slo_seconds),
        "series_start": scenario.series_start,
        "speed": scenario.speed,
        "horizon_seconds": scenario.horizon_seconds,
        "pue": {region.name: region.pue for region in scenario.regions},
    }


def _cleaner_but_lost(rows: Sequence[Mapping[str, Any]], chosen: Mapping[str, Any]) -> dict[str, str]:
    """For each region with a lower intensity than the chosen one's, the most common reason of its engines."""
    result: dict[str, str] = {}
    if chosen["intensity_g_per_kwh"] is None:
        return result
    for region in {row["region"] for row in rows} - {chosen["region"]}:
        members = [row for row in rows if row["region"] == region]
        intensity = members[0]["intensity_g_per_kwh"]
        if intensity is not None and intensity < chosen["intensity_g_per_kwh"]:
            result[region] = Counter(row["lost_because"] for row in members).most_common(1)[0][0]
    return result


def _percentile_ms(seconds: Sequence[float], percent: float) -> float | None:
    return milliseconds_from_seconds(float(np.percentile(seconds, percent))) if seconds else None
