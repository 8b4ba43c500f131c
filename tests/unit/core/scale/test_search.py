"""Large fleets: bounds that hold, quotas that are kept, prices that lead to what one program would find."""

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.core.scale.fleets import FREE, demand, fleet, group, region, variant

from heliotrope.errors import SolverError
from heliotrope.linear import Limits
from heliotrope.scale import search as searching
from heliotrope.scale.allocate import allocate
from heliotrope.scale.facts import FleetFacts, Load
from heliotrope.scale.options import prepare
from heliotrope.scale.plan import SolverOutcome
from heliotrope.scale.program import Part, Room, scales_of, solve_part
from heliotrope.scale.search import SearchLimit, search


def wide(groups: int, regions: int, quota: int, seed: int = 0, steps: int = 3) -> FleetFacts:
    """Two kinds of variant of each model in every region, none of them running; start times differ."""
    rng = np.random.default_rng(seed)
    places = [
        region(f"r{r}", tuple(float(x) for x in rng.uniform(20, 600, steps)), accelerators={"H100": quota})
        for r in range(regions)
    ]
    demands = [group(demand(*rng.uniform(5, 60, steps).tolist()), FREE, f"g{g}") for g in range(groups)]
    variants = [
        variant(
            f"g{g}-{p.name}-{kind}",
            0,
            float(rng.uniform(2, 10)),
            group=f"g{g}",
            region=p.name,
            watts=float(rng.uniform(50, 300)),
            joules=float(rng.uniform(5, 50)),
            accelerators_per_replica=1 + kind,
            max_replicas=int(rng.integers(10, 20)),
            start_seconds=float(rng.choice([120.0, 250.0, 550.0])),
            load=Load(0.0),
        )
        for g in range(groups)
        for p in places
        for kind in range(2)
    ]
    return fleet(demands, places, variants)


def value_of(facts: FleetFacts, exact: int, monkeypatch: pytest.MonkeyPatch) -> tuple[float, float]:
    """First stage's objective and its bound, with parts up to `exact` cells as one program."""
    monkeypatch.setattr(searching, "EXACT_CELLS", exact)
    options, seen = prepare(facts), []
    one, prices = searching._exactly, searching._by_prices
    for name, function in (("_exactly", one), ("_by_prices", prices)):
        monkeypatch.setattr(searching, name, lambda *args, f=function: seen.append(f(*args)) or seen[-1])
    search(options, SearchLimit())
    monkeypatch.setattr(searching, "_exactly", one)
    monkeypatch.setattr(searching, "_by_prices", prices)
    return sum(each.value for each in seen), sum(each.bound for each in seen)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("quota", [20, 30, 1_000])
def test_prices_find_nearly_what_one_program_does_and_their_bound_holds(
    seed: int, quota: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = wide(3, 4, quota, seed)
    best, least = value_of(facts, 10_000, monkeypatch)
    found, bound = value_of(facts, 0, monkeypatch)
    # What is not carried costs nothing, so that objectives could not be compared.
    assert all(g.unmet_requests_per_second < 1e-6 for g in allocate(facts).groups)
    assert least <= best * (1.0 + 1e-9)
    # A valid bound on every plan, though options were left out of the relaxation.
    assert bound <= best * (1.0 + 1e-6)
    assert found >= best * (1.0 - 1e-3)
    assert found <= best * 1.25


def test_groups_that_no_limit_joins_are_parts_of_their_own() -> None:
    assert search(prepare(wide(3, 2, 1_000)), SearchLimit()).parts == 3
    assert search(prepare(wide(3, 2, 8)), SearchLimit()).parts == 1


def test_a_large_fleet_keeps_its_quotas_and_says_how_good_it_is() -> None:
    facts = wide(6, 5, 10)
    plan = allocate(facts)
    desired = {v.name: v.desired or 0 for v in plan.variants}
    for place in facts.regions:
        used = sum(v.accelerators_per_replica * desired[v.name] for v in facts.variants if v.region == place.name)
        assert used <= 10
    assert plan.certificate.outcome in (SolverOutcome.OPTIMAL, SolverOutcome.FEASIBLE)
    assert plan.certificate.gap is not None
    assert 0.0 <= plan.certificate.gap < 0.5
    assert plan == allocate(facts)


def test_without_a_relaxation_groups_are_still_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise SolverError("no")

    monkeypatch.setattr(searching, "relaxed", fails)
    monkeypatch.setattr(searching, "EXACT_CELLS", 0)
    plan = allocate(wide(2, 2, 1_000))
    assert plan.certificate.gap is None
    assert plan.certificate.outcome is SolverOutcome.FEASIBLE
    assert all(g.unmet_requests_per_second < 1e-6 for g in plan.groups)


def test_one_group_that_fails_holds_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    real = solve_part

    def fails(part: Part, *args: object, **more: object) -> object:
        if part.groups == (0,):
            raise SolverError("no")
        return real(part, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(searching, "solve_part", fails)
    groups = [group(demand(40.0), name="a"), group(demand(40.0), name="b")]
    variants = [variant("v", 2, group="a", load=Load(8.0)), variant("w", 2, group="b", load=Load(8.0))]
    plan = allocate(fleet(groups, region("r"), variants))
    assert {v.name: v.desired for v in plan.variants} == {"v": 2, "w": 5}
    assert plan.certificate.failed_groups == ("a",)


def test_later_stages_stay_within_the_tolerance_of_earlier_ones() -> None:
    options = prepare(wide(1, 4, 1_000))
    part = Part(options, (0,), np.arange(len(options.variants)), Room(options.free_now, options.free_later))
    scales = scales_of(options)
    first = solve_part(part, scales, Limits(relative_gap=1e-6), stages=1)
    whole = solve_part(part, scales, Limits(relative_gap=1e-6))
    assert len(whole.values) == 3
    stage = options.groups[0].terms.stages[0]
    up = np.maximum(whole.replicas[:, 0] - options.current, 0.0) * options.start_seconds / options.step_seconds
    carbon = (
        (stage.costs.per_replica * whole.replicas).sum()
        + (stage.costs.per_request_rate * whole.rates).sum()
        + (stage.costs.per_replica[:, 0] * up).sum()
    ) / scales[stage.name]
    assert carbon <= first.values[0] * 1.05 * (1.0 + 1e-5)


def test_names_do_not_matter_where_nothing_ties() -> None:
    facts = wide(2, 3, 12)
    names = {v.name: f"z{index:03d}" for index, v in enumerate(reversed(facts.variants))}
    renamed = replace(facts, variants=tuple(replace(v, name=names[v.name]) for v in facts.variants))
    one, other = allocate(facts), allocate(renamed)
    by_name = {v.name: v.desired for v in other.variants}
    capacity = {v.name: v.capacity.requests_per_second if v.capacity else 0.0 for v in facts.variants}
    carried = sum((v.desired or 0) * capacity[v.name] for v in one.variants)
    again = sum((by_name[names[v.name]] or 0) * capacity[v.name] for v in facts.variants)
    assert again == pytest.approx(carried, rel=0.1)
