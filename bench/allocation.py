"""How long a fleet's plan takes on one core: 200 variants that may each run in any of 20 regions, 4,000 options.

    uv run python bench/allocation.py [--out build/bench/allocation.json]

Prints and writes JSON: seconds of whole plans (facts to explanations), the proven gap of each, and how the fleet fell
apart. `allocation_200x20_s` is the fleet whose clean regions are full (quotas bind everywhere, so that all groups are
one program), `…_roomy_s` the one whose quotas do not bind, `allocation_200_in_20_s` the one where each variant has one
region, as a WorkloadVariant has. Times are the shortest of the repeats; CPU seconds tell what the solver needs on a
machine that is busy with something else. `gap` is proven: no plan is better by more.
"""

import argparse
import json
import platform
import resource
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from heliotrope.api.v1alpha1.common import Role
from heliotrope.carbon.signal import EmissionFactor, SignalType
from heliotrope.scale.allocate import allocate
from heliotrope.scale.facts import (
    DemandForecast,
    FleetFacts,
    GroupFacts,
    Load,
    Mix,
    RegionFacts,
    ReplicaCapacity,
    ReplicaCounts,
    ScalingRules,
    Step,
    VariantFacts,
)

TYPES = ("A100-SXM4-80GB", "H100-SXM5-80GB", "H200-SXM-141GB", "L40S")


def fleet(
    variants: int, regions: int, steps: int, accelerators: int, seed: int = 0, groups: int = 50, running: bool = True
) -> FleetFacts:
    """Variants of `groups` models on four types of accelerator, each in every region."""
    rng = np.random.default_rng(seed)
    rules = ScalingRules(scale_up=Step(8, 0.0), scale_down=Step(4, 300.0), warm_reserve_share=0.1)
    wave = np.arange(steps)
    places = tuple(
        RegionFacts(
            name=f"region-{r:02d}",
            intensity_g_per_kwh=tuple((base * (1.0 + 0.2 * np.sin(wave + rng.uniform(0, 6)))).tolist()),
            signal=(SignalType.AVERAGE, EmissionFactor.LIFECYCLE),
            pue=float(rng.uniform(1.1, 1.4)),
            electricity_price_per_kwh=float(rng.uniform(0.05, 0.3)),
            accelerators=dict.fromkeys(TYPES, accelerators),
        )
        for r, base in enumerate(rng.uniform(20, 700, regions))
    )
    demands, demand_of = [], []
    for g in range(groups):
        level = rng.uniform(5, 100)
        expected = level * (1.0 + 0.3 * np.sin(0.7 * wave + rng.uniform(0, 6)))
        demand_of.append(level)
        forecast = DemandForecast(tuple(expected.tolist()), tuple((1.2 * expected).tolist()), Mix(1000.0, 200.0))
        demands.append(GroupFacts(f"models/pool/model-{g:02d}", rules, forecast))
    facts = []
    for v in range(variants):
        g, kind = v % groups, v // groups % len(TYPES)
        per_replica = int(rng.choice([1, 2, 4]))
        rate = float(rng.uniform(1, 8) * per_replica**0.9)
        idle = per_replica * float((60, 80, 90, 40)[kind])
        capacity = ReplicaCapacity(rate, float(idle * rng.uniform(2, 4) / rate), idle, 40.0 * per_replica)
        price = per_replica * float((1.5, 2.5, 3.0, 0.8)[kind])
        home = int(rng.integers(regions))
        for r, place in enumerate(places):
            count = int(np.ceil(0.3 * demand_of[g] / rate)) if running and r == home else 0
            facts.append(
                VariantFacts(
                    name=f"models/model-{g:02d}-{v:03d}-{place.name}",
                    group=f"models/pool/model-{g:02d}",
                    region=place.name,
                    role=Role.BOTH,
                    accelerator_type=TYPES[kind],
                    accelerators_per_replica=per_replica,
                    min_replicas=0,
                    max_replicas=20,
                    replicas=ReplicaCounts(count, count),
                    capacity=capacity,
                    load=Load(requests_per_second=0.6 * rate * count),
                    price_per_hour=price,
                )
            )
    return FleetFacts(1_700_000_000.0, 300.0, tuple(demands), places, tuple(facts))


def measure(facts: FleetFacts, repeats: int) -> dict[str, object]:
    seconds, cpu = [], []
    for _ in range(repeats):
        before, started = time.process_time(), time.perf_counter()
        plan = allocate(facts)
        seconds.append(time.perf_counter() - started)
        cpu.append(time.process_time() - before)
    certificate = plan.certificate
    return {
        "seconds": min(seconds),
        "cpu_seconds": min(cpu),
        "options": len(facts.variants),
        "steps": len(facts.groups[0].demand.upper) if facts.groups[0].demand else 0,
        "outcome": certificate.outcome.value,
        "gap": certificate.gap,
        "parts": certificate.parts,
        "nodes": certificate.nodes,
        "unmet_requests_per_second": sum(group.unmet_requests_per_second for group in plan.groups),
        "replicas": sum(variant.desired or 0 for variant in plan.variants),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/bench/allocation.json"))
    parser.add_argument("--steps", type=int, default=4, help="steps of the horizon")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    allocate(fleet(4, 2, 2, 100, groups=2))  # HiGHS is loaded before anything is measured.
    full = measure(fleet(200, 20, arguments.steps, 40), arguments.repeats)
    roomy = measure(fleet(200, 20, arguments.steps, 10_000), arguments.repeats)
    whole = fleet(200, 20, arguments.steps, 40)
    at_home = replace(whole, variants=tuple(v for v in whole.variants if v.replicas is not None and v.replicas.wanted))
    one_each = measure(at_home, arguments.repeats)
    result = {
        "allocation_200x20_s": full["seconds"],
        "allocation_200x20_roomy_s": roomy["seconds"],
        "allocation_200_in_20_s": one_each["seconds"],
        "full": full,
        "roomy": roomy,
        "one_region_each": one_each,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0,
        "machine": platform.processor() or platform.machine(),
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
