"""What makes programs quick leaves them what they are: parts and relaxations against plain HiGHS."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from tests.unit.core.plain_highs import PlainModel
from tests.unit.core.scale.test_allocate import fleets
from tests.unit.core.scale.test_search import wide

from heliotrope.linear import Limits
from heliotrope.scale import program as programs
from heliotrope.scale import search as searching
from heliotrope.scale.facts import FleetFacts
from heliotrope.scale.options import Options, prepare
from heliotrope.scale.program import Answer, Part, Room, prepare_part, relaxed, scales_of, solve_part
from heliotrope.scale.search import GAP, SearchLimit, _Usage, search


def parts(options: Options) -> list[Part]:
    room = Room(options.free_now, options.free_later)
    found = []
    for groups in searching._parts(options):
        members = np.flatnonzero(np.isin(options.group, groups))
        if len(members):
            found.append(Part(options, groups, members, room))
    return found


def solved(part: Part, scales: dict[str, float]) -> Answer | None:
    try:
        return solve_part(part, scales, Limits(None, 2_000, GAP))
    except programs.InfeasibleError:
        return None


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(fleets())
def test_stages_are_worth_what_a_plain_search_finds(monkeypatch: pytest.MonkeyPatch, facts: FleetFacts) -> None:
    options = prepare(facts)
    scales = scales_of(options)
    for part in parts(options):
        ours = solved(part, scales)
        with monkeypatch.context() as patched:
            patched.setattr(programs, "Model", PlainModel)
            patched.setattr(programs, "solve", lambda program, limits: PlainModel(program).solve(program.cost, limits))
            plain = solved(part, scales)
        assert (ours is None) == (plain is None)
        if ours is None or plain is None:
            continue
        assert ours.values[0] == pytest.approx(plain.values[0], rel=2 * GAP, abs=1e-5)
        assert ours.bound <= plain.values[0] * (1.0 + 1e-6) + 1e-6
        # Each later stage may be worse by its gap, and is bounded by the one before, which may differ by its own.
        for one, other in zip(ours.values[1:], plain.values[1:], strict=True):
            assert one == pytest.approx(other, rel=4 * programs.LATER_GAP, abs=1e-4)
        # What has to yield is made least within a gap of its own.
        assert ours.short.sum() == pytest.approx(plain.short.sum(), rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("quota", [8, 20])
def test_a_relaxation_that_begins_where_one_of_fewer_options_ended_is_the_same(quota: int) -> None:
    options = prepare(wide(3, 4, quota))
    scales = scales_of(options)
    whole = parts(options)
    assert len(whole) == 1
    few = replace(whole[0], members=whole[0].members[::2])
    _, _, _, ended = relaxed(few, scales)
    warm, duals, replicas, _ = relaxed(whole[0], scales, ended())
    cold, _, _, _ = relaxed(whole[0], scales)
    assert warm == pytest.approx(cold, rel=1e-9)
    assert replicas.shape == (len(options.variants), options.steps)
    # Prices of the optimum: nothing that was left out could improve it.
    assert searching._missed(whole[0], few.members, duals, scales) == pytest.approx(0.0, abs=1e-6 * abs(cold))


def test_what_is_prepared_once_is_solved_for_any_room() -> None:
    options = prepare(wide(1, 3, 12))
    scales = scales_of(options)
    part = Part(options, (0,), np.arange(len(options.variants)), Room(options.free_now, options.free_later))
    prepared = prepare_part(part)
    for share in (1.0, 0.5, 0.8, 1.0):
        room = Room(options.free_now * share, options.free_later * share)
        again = solve_part(replace(part, room=room), scales, Limits(relative_gap=1e-6), prepared=prepared)
        anew = solve_part(replace(part, room=room), scales, Limits(relative_gap=1e-6))
        assert again.values == pytest.approx(anew.values)
        assert again.replicas == pytest.approx(anew.replicas)


def test_the_others_leave_what_they_do_not_take() -> None:
    options = prepare(wide(3, 2, 10))
    usage = _Usage(options, (0, 1, 2))
    assert usage.room(1).now == pytest.approx(options.free_now)
    members = options.groups[0].members
    replicas = np.zeros((len(members), options.steps))
    replicas[0, 0], replicas[0, 1] = 2.0, 3.0
    usage.put(0, members, replicas)
    (index, weight), *_ = options.limits_of[int(members[0])]
    assert usage.room(1).now[index] == options.free_now[index] - 2.0 * weight
    assert usage.room(1).later[index] == options.free_later[index] - 3.0 * weight
    # A group's own plan is not in its way.
    assert usage.room(0).now == pytest.approx(options.free_now)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_short_is_planned_with_all_options(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each model is first solved with a few options: where others have filled those, the rest has to do."""
    monkeypatch.setattr(searching, "EXACT_CELLS", 0)
    generate = searching._generate

    def too_few(part: Part, scales: dict[str, float]) -> object:
        bound, kept, duals = generate(part, scales)
        first = [kept[part.options.group[kept] == group][:1] for group in part.groups]
        return bound, np.concatenate(first), duals

    monkeypatch.setattr(searching, "_generate", too_few)
    options = prepare(wide(3, 4, 30, seed))
    assert search(options, SearchLimit()).short.max() < 1e-6
