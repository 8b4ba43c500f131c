"""What a window's assignment costs: CPU milliseconds from columns to assignment, and how far it is from the optimum.

    uv run python bench/schedulers.py [--quick] [--output build/bench/schedulers.json]

The whole schedulers are timed, estimates included, on two kinds of windows in equal number; each has capacity for 2.1
times its requests and wake-up costs of about 30 % of the objective, for which the window's length is chosen:

- `buckets`: three lengths with a tenth of spread, 20 sets of allowed regions, one kind of engine.
- `mixed`: any length, prefixes cached at the home of a third of the requests, two kinds of engines, some requests with
  a set of allowed regions of their own.

Cold calls have no memory. Warm ones follow a window of the same regions with other requests and a load that has moved.
What is timed is CPU time of the thread, so that other load on the machine disturbs it through the caches only. Gaps are
against HiGHS, run to proven optimality on the same requests, not on classes of them, outside the timing; where that
would take too long (tokens, 1000 requests) against the scheduler's own proven bound, as the report says.

`unrelated_300x16` is the search alone where it is weakest: costs of which half is noise and room for four times the
requests, so that hardly a choice of regions bounds another. HiGHS needs seconds for such a program.
"""

import argparse
import gc
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from machine import describe, spin_milliseconds

from heliotrope.engine.coefficients import coefficients
from heliotrope.engine.profiles import load
from heliotrope.place.assignment import Assignment, Reason, Scheduler
from heliotrope.place.estimate import estimate
from heliotrope.place.policy import CapacityUnit, PlacementPolicy, WorkLimit
from heliotrope.place.regions import Regions
from heliotrope.place.schedulers.facility import facility
from heliotrope.place.schedulers.greedy import greedy
from heliotrope.place.schedulers.ilp import ilp
from heliotrope.place.schedulers.iterative import iterative_ilp
from heliotrope.place.solve.classes import aggregate, single
from heliotrope.place.solve.facility import solve, warm_up
from heliotrope.place.solve.highs import HighsResult, facility_by_highs
from heliotrope.place.solve.model import Model, model_of
from heliotrope.place.solve.problem import Problem, problem_of
from heliotrope.place.solved import Costs, problem_from
from heliotrope.place.window import NO_HOME, Window

SLOTS = 40.0
ROOM = 2.1
FIXED_SHARE = 0.3
ENGINES = ("llama-3.1-8b-a100-40gb", "llama-3.1-8b-h100")
HIGHS_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class Instance:
    """Two windows of the same regions: the first is what the second is warm from."""

    kind: str
    before: tuple[Window, Regions]
    now: tuple[Window, Regions]
    policy: PlacementPolicy


def instance(kind: str, seed: int, n: int, d: int, unit: CapacityUnit) -> Instance:
    """One pair of windows with the policy under which wake-up costs have their share."""
    rng = np.random.default_rng([seed, kind == "mixed", n, d])
    regions = some_regions(rng, kind, n, d)
    running = np.minimum(regions.running * rng.uniform(0.97, 1.03, d), SLOTS)
    moved = replace(regions, running=running, kv_tokens=900.0 * running)
    pair = [some_window(rng, kind, n, d) for _ in range(2)]
    policy = PlacementPolicy(capacity_unit=unit, window_seconds=1.0)
    for _ in range(3):  # the share depends on what opens, which depends on the share
        estimates = estimate(pair[1], moved, policy)
        places = facility(pair[1], moved, policy, 0.0, None).regions
        wakes = float(estimates.wake_cost[np.unique(places)].sum())
        requests = Costs(estimates.cost, np.zeros(d)).of(places)
        seconds = policy.window_seconds * FIXED_SHARE / (1.0 - FIXED_SHARE) * requests / wakes
        policy = replace(policy, window_seconds=seconds)
    return Instance(kind, (pair[0], regions), (pair[1], moved), policy)


def some_regions(rng: np.random.Generator, kind: str, n: int, d: int) -> Regions:
    """Regions with room for `ROOM` times the requests together, engines busy or idle."""
    share = rng.uniform(0.4, 1.6, d)
    slots = np.ceil(ROOM * n * share / share.sum())
    engines = np.ceil(slots / (SLOTS * rng.uniform(0.3, 0.9, d)))
    running = SLOTS - slots / engines
    rows = [coefficients(load(ENGINES[i % 2 if kind == "mixed" else 0])) for i in range(d)]
    return Regions(
        names=tuple(f"region-{i}" for i in range(d)),
        engine_rows=np.array(rows),
        engines=engines,
        batch_capacity=np.full(d, SLOTS),
        running=running,
        waiting=np.zeros(d),
        waiting_tokens=np.zeros(d),
        kv_tokens=900.0 * running,
        prefill_duty=rng.uniform(0.0, 0.3, d),
        idle_engines=np.maximum(np.floor(engines * (1.0 - running / SLOTS)), 1.0),
        intensity_g_per_kwh=rng.uniform(50.0, 700.0, d) if kind == "buckets" else 300.0 * rng.lognormal(0.0, 0.45, d),
        pue=rng.uniform(1.05, 1.4, d),
        rtt_seconds=rng.uniform(0.0, 0.28, d),
        dispatch_seconds=np.zeros(d),
        age_seconds=rng.uniform(0.0, 1.0, d),
        largest_share=np.ones(d),
        recent_share=np.full(d, np.nan),
    )


def some_window(rng: np.random.Generator, kind: str, n: int, d: int) -> Window:
    """Requests with the SLOs of paper carbon-slo-tension."""
    home, cached = np.full(n, NO_HOME), np.zeros((n, d))
    if kind == "buckets":
        bucket = rng.integers(0, 3, n)
        prompt = np.round(np.array([300.0, 841.0, 2_000.0])[bucket] * rng.uniform(0.9, 1.1, n))
        output = np.round(np.array([30.0, 71.0, 160.0])[bucket] * rng.uniform(0.9, 1.1, n))
        allowed = (rng.random((20, d)) < 0.875)[rng.integers(0, 20, n)]
    else:
        prompt, output = np.round(rng.lognormal(6.4, 0.8, n)) + 1.0, np.round(rng.lognormal(4.0, 0.7, n)) + 1.0
        home = np.where(rng.random(n) < 0.33, rng.integers(0, d, n), NO_HOME)
        at_home = np.flatnonzero(home != NO_HOME)
        cached[at_home, home[at_home]] = np.round(0.8 * prompt[at_home])
        allowed = (rng.random((5, d)) < 0.875)[rng.integers(0, 5, n)]
        alone = rng.random(n) < 0.1
        allowed[alone] = rng.random((int(alone.sum()), d)) < 0.6
    return Window(
        prompt_tokens=prompt,
        output_tokens=output,
        waited_seconds=rng.uniform(0.0, 0.1, n),
        ttft_slo_seconds=np.full(n, 3.0),
        tpot_slo_seconds=np.full(n, 0.1),
        cached_tokens=cached,
        allowed=allowed,
        home=home,
    )


def timed(
    scheduler: Scheduler, asked: tuple[Window, Regions], policy: PlacementPolicy, memory: Any
) -> tuple[Any, float]:
    """The assignment and its CPU milliseconds."""
    gc.collect()
    started = time.thread_time_ns()
    assignment = scheduler(*asked, policy, 0.0, memory)
    return assignment, (time.thread_time_ns() - started) / 1e6


def percentiles(values: list[float], prefix: str = "") -> dict[str, float]:
    """Median and tail, in ms."""
    return {f"{prefix}p{q}_ms": round(float(np.percentile(values, q)), 3) for q in (50, 99)}


def measure(scheduler: Scheduler, instances: list[Instance]) -> tuple[dict[str, Any], list[Assignment]]:
    """Cold and warm calls; each window once before, untimed, so that caches hold code and data as in service."""
    cold, warm, found = [], [], []
    for each in instances:
        memory = scheduler(*each.before, each.policy, 0.0, None).memory
        assignment, milliseconds = timed(scheduler, each.now, each.policy, None)
        cold.append(milliseconds)
        found.append(assignment)
        warm.append(timed(scheduler, each.now, each.policy, memory)[1])
    report = {"windows": len(instances)} | percentiles(cold) | percentiles(warm, "warm_")
    for kind in sorted({each.kind for each in instances}):
        of_kind = [value for value, each in zip(cold, instances, strict=True) if each.kind == kind]
        report |= percentiles(of_kind, f"{kind}_")
    return report | {"evaluations_p50": float(np.median([each.work for each in found]))}, found


def unrelated(count: int) -> dict[str, Any]:
    """The search on programs with hardly a pattern, and what one evaluation takes."""
    milliseconds, per_cell, gaps = [], [], []
    for seed in range(count):
        problem = unrelated_program(seed)
        gc.collect()
        started = time.thread_time_ns()
        solution = solve(problem, WorkLimit())
        spent = (time.thread_time_ns() - started) / 1e6
        assert solution is not None
        milliseconds.append(spent)
        gaps.append(solution.gap)
        if solution.evaluations > 50:
            per_cell.append(1e6 * spent / (solution.evaluations * problem.cost.size))
    report = {"windows": count} | percentiles(milliseconds)
    report |= {"gap_p50": float(np.median(gaps)), "gap_p99": float(np.percentile(gaps, 99)), "gap_against": "own bound"}
    return report | {"evaluation_ns_per_cell_p99": float(np.percentile(per_cell, 99)) if per_cell else None}


def unrelated_program(seed: int, n: int = 300, d: int = 16) -> Problem:
    """See the module's docstring."""
    rng = np.random.default_rng(seed)
    intensity = 300.0 * rng.lognormal(0.0, 0.05, d)
    cost = rng.lognormal(0.0, 0.6, n)[:, None] * intensity * (1.0 + 0.5 * rng.normal(size=(n, d)))
    share = rng.uniform(0.5, 1.5, d)
    share /= share.sum()
    fixed = 300.0 * n * share * rng.uniform(0.8, 1.2, d)
    return problem_of(cost, rng.random((n, d)) < 0.9, np.floor(4.0 * n * share), fixed)


def program(each: Instance) -> tuple[Costs, Problem]:
    """What the facility scheduler solves."""
    estimates = estimate(*each.now, each.policy)
    costs = Costs(estimates.cost, estimates.wake_cost)
    return costs, problem_from(costs, estimates, each.policy)


def by_highs(model: Model) -> tuple[HighsResult, float]:
    """Its optimum and CPU milliseconds."""
    started = time.thread_time_ns()
    found = facility_by_highs(model.cost, model.amount, model.capacity, model.fixed, tolerance=HIGHS_TOLERANCE)
    return found, (time.thread_time_ns() - started) / 1e6


def against_highs(instances: list[Instance], found: list[Assignment]) -> dict[str, Any]:
    """Gaps to the proven optimum, and what HiGHS needs: for requests, and for classes of them."""
    gaps, of_requests, of_classes, shares = [], [], [], []
    for each, assignment in zip(instances, found, strict=True):
        costs, problem = program(each)
        somewhere = np.isfinite(problem.cost).any(axis=1)
        inside = replace(problem, cost=problem.cost[somewhere], weight=problem.weight[somewhere])
        model = model_of(inside, single(inside))
        optimum, milliseconds = by_highs(model)
        of_requests.append(milliseconds)
        of_classes.append(by_highs(model_of(inside, aggregate(inside)))[1])
        left_out = float(optimum.flow[-1].sum())
        least = (optimum.objective - left_out * model.cost[0, -1]) * model.cost_unit
        ours = np.where(assignment.reasons == Reason.OBJECTIVE, assignment.regions, -1)
        if (ours[somewhere] < 0).sum() != round(left_out):
            raise RuntimeError("the scheduler placed fewer requests than HiGHS did")
        gaps.append(costs.of(ours) / least - 1.0)
        shares.append(float((optimum.opened[:-1] * problem.fixed).sum()) / least)
    return (
        {"gap_p50": float(np.median(gaps)), "gap_p99": float(np.percentile(gaps, 99)), "gap_max": max(gaps)}
        | {
            "gap_against": "HiGHS, proven within 1e-6, requests not classes",
            "fixed_share_p50": float(np.median(shares)),
        }
        | percentiles(of_requests, "highs_requests_")
        | percentiles(of_classes, "highs_classes_")
    )


def own_gaps(found: list[Assignment]) -> dict[str, Any]:
    """Gaps to the scheduler's own proven bound: the true ones are smaller."""
    gaps = [each.gap for each in found if not np.isnan(each.gap)]
    return {
        "gap_p50": float(np.median(gaps)),
        "gap_p99": float(np.percentile(gaps, 99)),
        "gap_against": "own bound",
        "without_bound": len(found) - len(gaps),
    }


def instances_of(count: int, n: int, d: int, unit: CapacityUnit = CapacityUnit.REQUESTS) -> Iterator[Instance]:
    """Both kinds in turn."""
    for seed in range(count):
        yield instance(("buckets", "mixed")[seed % 2], seed, n, d, unit)


def main() -> None:
    """Run, print, store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer windows")
    parser.add_argument("--output", type=Path, default=Path("build/bench/schedulers.json"))
    arguments = parser.parse_args()
    windows, large = (24, 6) if arguments.quick else (120, 30)
    warm_up()
    report: dict[str, Any] = {"machine": describe()}
    usual = list(instances_of(windows, 300, 16))
    in_tokens = list(instances_of(windows, 300, 16, CapacityUnit.TOKENS))
    for name, scheduler in (("greedy", greedy), ("ilp", ilp), ("iterative", iterative_ilp)):
        report[f"{name}_300x16"], _ = measure(scheduler, usual)
    report["facility_300x16"], found = measure(facility, usual)
    report["facility_300x16"] |= against_highs(usual, found)
    report["facility_tokens_300x16"], found = measure(facility, in_tokens)
    report["facility_tokens_300x16"] |= own_gaps(found)
    report["facility_1000x64"], found = measure(facility, list(instances_of(large, 1000, 64)))
    report["facility_1000x64"] |= own_gaps(found)
    report["unrelated_300x16"] = unrelated(windows)
    report["spin_milliseconds_after"] = spin_milliseconds()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
