from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.agent.control.world import OTHER, POD, READING, eligible, facts, gpu, intent, uid, wishes

from heliotrope.api.v1alpha1.common import Enforcement
from heliotrope_agent.control.memory import Drift, GpuMemory
from heliotrope_agent.control.plan import Action, Facts, GpuPlan, Plan, plan
from heliotrope_agent.control.reasons import Cause, Reason
from heliotrope_agent.control.rules import Rules
from heliotrope_agent.pods.claims import Holder, PodName, Standing
from heliotrope_agent.state.records import Knob, Levels, Ownership

RULES = Rules()


def owned(number: int, levels: Levels, pod: PodName = POD, **fields: object) -> Ownership:
    found = Ownership(
        f"GPU-{number}",
        Levels(power_limit_milliwatts=400_000),
        levels,
        levels.knobs(),
        pod.namespace,
        pod.name,
        uid(pod),
        0.0,
        "boot",
    )
    return replace(found, **fields)  # type: ignore[arg-type]


def both(levels: Levels) -> Mapping[str, Ownership]:
    return {each.uuid: each for each in (owned(0, levels), owned(1, levels))}


def one(made: Plan, number: int = 0) -> GpuPlan:
    return next(each for each in made.gpus if each.uuid == f"GPU-{number}")


def test_both_gpus_of_a_pod_are_set_alike() -> None:
    made = plan(facts(wishes(intent(POD, sm_clock_mhz=817, watts=250)), eligible(POD, POD)), RULES)
    assert [each.action for each in made.gpus] == [Action.SET, Action.SET]
    assert {each.levels for each in made.gpus} == {Levels(810, None, 250_000)}
    assert {each.reasons for each in made.gpus} == {(Reason.CLAMPED,)}


@pytest.mark.parametrize(("asked", "mhz"), [(1, 210), (210, 210), (224, 210), (225, 225), (1410, 1410), (9_999, 1410)])
def test_clocks_go_to_the_nearest_supported_below(asked: int, mhz: int) -> None:
    made = plan(facts(wishes(intent(POD, sm_clock_mhz=asked)), eligible(POD, POD)), RULES)
    assert one(made).levels == Levels(sm_clock_mhz=mhz)
    assert (Reason.CLAMPED in one(made).reasons) == (asked != mhz)


def test_unequal_gpus_of_a_pod_get_what_all_can() -> None:
    devices = (gpu(0), gpu(1, sm_clocks_mhz=(300, 600, 900), milliwatts_max=350_000, milliwatts_min=200_000))
    wish = wishes(intent(POD, sm_clock_mhz=1000, watts=150))
    made = plan(facts(wish, eligible(POD, POD), devices=devices), RULES)
    assert {each.levels for each in made.gpus} == {Levels(900, None, 200_000)}


def test_what_a_device_cannot_is_left_out_for_its_group() -> None:
    devices = (gpu(0), gpu(1, sm_clocks_mhz=()))
    made = plan(facts(wishes(intent(POD, sm_clock_mhz=900, watts=200)), eligible(POD, POD), devices=devices), RULES)
    assert {each.levels for each in made.gpus} == {Levels(power_limit_milliwatts=200_000)}
    assert one(made).reasons == (Reason.UNSUPPORTED,)
    made = plan(facts(wishes(intent(POD, sm_clock_mhz=900)), eligible(POD, POD), devices=devices), RULES)
    assert {each.action for each in made.gpus} == {Action.NOTHING}


def test_a_power_limit_whose_original_is_unknown_is_not_set() -> None:
    readings = {"GPU-0": READING, "GPU-1": replace(READING, power_limit_milliwatts=None)}
    wish = wishes(intent(POD, sm_clock_mhz=900, watts=200))
    made = plan(facts(wish, eligible(POD, POD), readings=readings), RULES)
    assert {each.levels for each in made.gpus} == {Levels(sm_clock_mhz=900)}


WISH = intent(POD, sm_clock_mhz=900)
SHARED = dict.fromkeys(("GPU-0", "GPU-1"), Holder(Standing.SHARED))
PARTITIONED = (gpu(0, mig=True), gpu(1, mig=True))
LEFT = [
    (facts(wishes(WISH, enforcement=Enforcement.ADVISE), eligible(POD, POD)), Cause.ADVISE),
    (facts(wishes(WISH, until_s=1000.0), eligible(POD, POD)), Cause.LEASE_EXPIRED),
    (facts(wishes(), eligible(POD, POD)), Cause.INTENT_GONE),
    (facts(replace(wishes(), node_power=None), eligible(POD, POD)), Cause.INTENT_GONE),
    (facts(wishes(WISH, intent(POD, variant="w", watts=200)), eligible(POD, POD)), Cause.NOT_ELIGIBLE),
    (facts(wishes(WISH), eligible(None, None)), Cause.POD_GONE),
    (facts(wishes(WISH), eligible(OTHER, OTHER)), Cause.MOVED),
    (facts(wishes(WISH), SHARED), Cause.NOT_ELIGIBLE),
    (facts(wishes(WISH), eligible(POD, POD), devices=PARTITIONED), Cause.NOT_ELIGIBLE),
    (facts(wishes(WISH), None), Cause.OWNERS_UNKNOWN),
]


@pytest.mark.parametrize(("found", "cause"), LEFT)
def test_without_a_valid_wish_nothing_is_set_and_what_is_set_is_put_back(found: Facts, cause: Cause) -> None:
    made = plan(found, RULES)
    assert {each.action for each in made.gpus} == {Action.NOTHING}
    made = plan(replace(found, owned=both(Levels(810))), RULES)
    assert {each.action for each in made.gpus} == {Action.RELEASE}
    assert {each.cause for each in made.gpus} == {cause}


def test_gpus_that_move_are_put_back_before_they_are_set_for_the_next_pod() -> None:
    found = facts(wishes(intent(POD, OTHER, sm_clock_mhz=900)), eligible(OTHER, OTHER), owned=both(Levels(900)))
    made = plan(found, RULES)
    assert {(each.action, each.cause) for each in made.gpus} == {(Action.RELEASE, Cause.MOVED)}


@pytest.mark.parametrize("standing", [Standing.SHARED, Standing.MIG, Standing.FOREIGN_OWNER])
def test_one_gpu_that_is_not_eligible_keeps_its_pod_from_being_set(standing: Standing) -> None:
    wish = wishes(intent(POD, sm_clock_mhz=900))
    for holder in (Holder(standing, POD), Holder(standing, None, frozenset({POD, OTHER}))):
        holders = {"GPU-0": Holder(Standing.ELIGIBLE, POD), "GPU-1": holder}
        assert {each.action for each in plan(facts(wish, holders), RULES).gpus} == {Action.NOTHING}
        made = plan(facts(wish, holders, owned=both(Levels(900))), RULES)
        assert {each.action for each in made.gpus} == {Action.RELEASE}
        assert Reason.GROUP in one(made, 0).reasons


@pytest.mark.parametrize("holders", [None, {"GPU-0": Holder(Standing.ELIGIBLE, POD)}])
def test_unknown_owners_hold_what_is_set_for_a_bounded_time(holders: Mapping[str, Holder] | None) -> None:
    wish = wishes(intent(POD, sm_clock_mhz=600))
    verified = {uuid: GpuMemory(verified_at_s=900.0) for uuid in ("GPU-0", "GPU-1")}
    found = facts(wish, holders, owned=both(Levels(900)), memory=verified)
    assert {each.action for each in plan(found, RULES).gpus} == {Action.HOLD}
    assert {each.action for each in plan(replace(found, now_s=1501.0), RULES).gpus} == {Action.RELEASE}
    # A lease that ends, or an intent that goes, is not waited for.
    gone = replace(found, wishes=wishes())
    assert {each.action for each in plan(gone, RULES).gpus} == {Action.RELEASE}


def test_slowing_down_waits_and_speeding_up_does_not() -> None:
    memory = {uuid: GpuMemory(changed_at_s=990.0) for uuid in ("GPU-0", "GPU-1")}
    found = facts(
        wishes(intent(POD, sm_clock_mhz=600, watts=350)),
        eligible(POD, POD),
        owned=both(Levels(900, None, 300_000)),
        memory=memory,
    )
    made = plan(found, RULES)
    assert {each.levels for each in made.gpus} == {Levels(900, None, 350_000)}
    assert one(made).reasons == (Reason.DWELL,)
    made = plan(replace(found, now_s=1051.0), RULES)
    assert {each.levels for each in made.gpus} == {Levels(600, None, 350_000)}
    # A knob that is no longer asked for is put back at once.
    made = plan(replace(found, wishes=wishes(intent(POD, watts=300))), RULES)
    assert {each.levels for each in made.gpus} == {Levels(None, None, 300_000)}


def test_a_gpu_that_was_put_back_a_moment_ago_is_not_slowed_down_again() -> None:
    memory = {"GPU-0": GpuMemory(changed_at_s=990.0)}
    made = plan(facts(wishes(intent(POD, sm_clock_mhz=600)), eligible(POD, POD), memory=memory), RULES)
    assert {each.action for each in made.gpus} == {Action.NOTHING}
    assert one(made).reasons == (Reason.DWELL,)


def test_the_node_slows_down_so_many_gpus_a_minute_and_groups_as_a_whole() -> None:
    wish = wishes(intent(POD, OTHER, sm_clock_mhz=600))
    devices = tuple(gpu(number) for number in range(4))
    found = facts(
        wish,
        eligible(POD, POD, OTHER, OTHER),
        devices=devices,
        readings={each.uuid: READING for each in devices},
    )
    made = plan(found, replace(RULES, node_changes_per_minute=3))
    assert [each.action for each in made.gpus] == [Action.SET, Action.SET, Action.NOTHING, Action.NOTHING]
    busy = {"GPU-9": GpuMemory(lowered_at_s=(990.0,) * 2)}
    made = plan(replace(found, memory=busy), replace(RULES, node_changes_per_minute=3))
    assert {each.action for each in made.gpus} == {Action.NOTHING}


def test_a_group_that_failed_waits() -> None:
    memory = {"GPU-1": GpuMemory(retry_at_s=1001.0, failures=1, problem=Reason.DENIED)}
    found = facts(wishes(intent(POD, sm_clock_mhz=600)), eligible(POD, POD), memory=memory)
    made = plan(found, RULES)
    assert {each.action for each in made.gpus} == {Action.NOTHING}
    assert {each.reasons for each in made.gpus} == {(Reason.DENIED,)}
    assert {each.action for each in plan(replace(found, now_s=1001.0), RULES).gpus} == {Action.SET}


def test_somebody_elses_knobs_are_left_and_ours_put_back() -> None:
    memory = {"GPU-0": GpuMemory(foreign=frozenset({Knob.POWER_LIMIT}), foreign_until_s=2000.0, foreign_pod=POD)}
    wish = wishes(intent(POD, sm_clock_mhz=600, watts=200))
    made = plan(facts(wish, eligible(POD, POD), owned=both(Levels(600, None, 200_000)), memory=memory), RULES)
    assert [each.action for each in made.gpus] == [Action.RELEASE, Action.RELEASE]
    assert one(made, 0).left == {Knob.POWER_LIMIT}
    assert one(made, 1).left == frozenset()


def test_what_cannot_be_read_is_held() -> None:
    wish = wishes(intent(POD, sm_clock_mhz=600))
    made = plan(facts(wish, eligible(POD, POD), owned=both(Levels(600)), readings={"GPU-0": READING}), RULES)
    assert {each.action for each in made.gpus} == {Action.HOLD}
    assert one(made, 1).reasons == (Reason.DRIVER_ERROR,)
    # A GPU that has fallen off the bus is still known to be ours.
    made = plan(facts(wish, eligible(POD), owned=both(Levels(600)), devices=(gpu(0),)), RULES)
    assert len(made.gpus) == 2


def test_a_setting_that_vanished_is_made_again() -> None:
    memory = {uuid: GpuMemory(drift=Drift(lost=True)) for uuid in ("GPU-0",)}
    found = facts(wishes(intent(POD, sm_clock_mhz=600)), eligible(POD, POD), owned=both(Levels(600)), memory=memory)
    assert [each.action for each in plan(found, RULES).gpus] == [Action.SET, Action.HOLD]


pods = st.sampled_from((POD, OTHER))
holders = st.builds(
    lambda standing, pod, shared: Holder(
        standing,
        None if standing is Standing.FREE or (standing is Standing.SHARED and shared) else pod,
        frozenset({POD, OTHER}) if standing is Standing.SHARED and shared else frozenset(),
    ),
    st.sampled_from(list(Standing)),
    pods,
    st.booleans(),
)
level_sets = st.builds(
    Levels, st.none() | st.sampled_from((300, 600, 900)), st.none(), st.none() | st.sampled_from((150_000, 300_000))
).filter(lambda each: bool(each.knobs()))
memories = st.builds(
    GpuMemory,
    changed_at_s=st.sampled_from((-1e9, 950.0, 999.5)),
    lowered_at_s=st.lists(st.floats(0, 1000), max_size=3).map(tuple),
    verified_at_s=st.sampled_from((-1e9, 500.0, 999.0)),
    foreign_until_s=st.sampled_from((-1e9, 1100.0)),
    foreign_pod=pods,
    retry_at_s=st.sampled_from((-1e9, 1100.0)),
    problem=st.none() | st.just(Reason.DRIVER_ERROR),
    stranded=st.sampled_from((False, False, False, True)),
)
intents = st.lists(
    st.builds(
        lambda names, variant, sm, watts, advise: intent(
            *names,
            variant=variant,
            sm_clock_mhz=sm,
            watts=watts,
            enforcement=Enforcement.ADVISE if advise else None,
        ),
        st.lists(pods, min_size=1, max_size=2, unique=True),
        st.sampled_from(("v", "w")),
        st.integers(1, 2000),
        st.none() | st.integers(50, 500),
        st.sampled_from((False, False, False, True)),
    ),
    max_size=2,
    unique_by=lambda each: each.variant,
)


@st.composite
def worlds(draw: st.DrawFn) -> Facts:
    devices = tuple(gpu(number, mig=draw(st.sampled_from((False,) * 5 + (True,)))) for number in range(4))
    uuids = [each.uuid for each in devices]
    records = {
        uuid: owned(number, draw(level_sets), draw(pods)) for number, uuid in enumerate(uuids) if draw(st.booleans())
    }
    return Facts(
        now_s=1000.0,
        devices=devices,
        readings={uuid: READING for uuid in uuids if draw(st.sampled_from((True,) * 5 + (False,)))},
        holders=draw(st.none() | st.fixed_dictionaries(dict.fromkeys(uuids, holders))),
        wishes=wishes(*draw(intents), until_s=draw(st.sampled_from((999.0, 2000.0, 2000.0)))),
        owned=records,
        memory={uuid: draw(memories) for uuid in uuids if draw(st.booleans())},
        blocked=draw(st.sampled_from((None, None, Reason.STATE_UNWRITABLE))),
    )


@settings(max_examples=80, deadline=None)
@given(worlds())
def test_only_eligible_gpus_are_set_pods_alike_and_none_that_is_not_owned_is_put_back(found: Facts) -> None:
    made = plan(found, RULES)
    assert {each.uuid for each in made.gpus} == {each.uuid for each in found.devices} | set(found.owned)
    devices = {each.uuid: each for each in found.devices}
    for each in made.gpus:
        if each.action is Action.SET:
            assert found.holders is not None
            holder = found.holders[each.uuid]
            assert holder.standing is Standing.ELIGIBLE
            assert not devices[each.uuid].mig
            assert found.now_s < found.wishes.lease_until_s
            assert found.blocked is None
            assert each.levels is not None
            assert each.pod_uid == uid(each.pod) if each.pod else False
            siblings = [other for other in made.gpus if found.holders[other.uuid].pod == each.pod]
            for other in siblings:
                standing = other.levels if other.action is Action.SET else found.owned[other.uuid].set
                assert standing == each.levels, "alike, whether set now or already"
        if each.action in {Action.RELEASE, Action.HOLD}:
            assert each.uuid in found.owned
        if each.action is Action.RELEASE:
            assert each.cause is not None


def carried_out(found: Facts, made: Plan) -> Facts:
    """The facts once a plan has been carried out without a failure."""
    records = dict(found.owned)
    memory = dict(found.memory)
    for each in made.gpus:
        if each.action is Action.SET:
            assert each.levels is not None
            assert each.pod is not None
            before = records.get(each.uuid) or owned(int(each.uuid[-1]), each.levels, each.pod)
            records[each.uuid] = replace(before, set=each.levels, touched=before.touched | each.levels.knobs())
            memory[each.uuid] = found.remembered(each.uuid).changed(found.now_s, lowered=each.lowers)
        if each.action is Action.RELEASE:
            del records[each.uuid]
            memory[each.uuid] = found.remembered(each.uuid).released(found.now_s)
    return replace(found, owned=records, memory=memory)


@settings(max_examples=80, deadline=None)
@given(worlds())
def test_a_plan_carried_out_leaves_nothing_to_do_at_once(found: Facts) -> None:
    after = carried_out(found, plan(found, RULES))
    again = plan(after, RULES)
    assert again.doing(Action.RELEASE) == ()
    first = {each.uuid for each in plan(found, RULES).gpus if each.action is Action.SET}
    assert not first & {each.uuid for each in again.doing(Action.SET)}


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_without_wishes_one_plan_puts_everything_back(found: Facts) -> None:
    found = replace(found, wishes=wishes())
    after = carried_out(found, plan(found, RULES))
    assert after.owned == {}
