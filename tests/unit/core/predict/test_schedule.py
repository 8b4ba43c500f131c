from heliotrope.predict.drift import Drift
from heliotrope.predict.models import Level
from heliotrope.predict.schedule import Occasion, SchedulePolicy, TrainingSchedule
from heliotrope.predict.targets import Target

POLICY = SchedulePolicy(first_after=5, every=20, after_drift=4, min_interval_seconds=30.0, settled_after=40)


def drift(hardware: int = 7, since: float = 50.0) -> Drift:
    return Drift(Target.TTFT, hardware, since, since + 10.0, Level.CURRENT, Level.ANALYTIC, 0.5)


def sampled(schedule: TrainingSchedule, count: int, hardware: int = 1) -> None:
    for _ in range(count):
        schedule.sampled(hardware)


def occasion(schedule: TrainingSchedule, now_s: float) -> Occasion | None:
    plan = schedule.due(now_s)
    return None if plan is None else plan.occasion


def test_first_early_then_after_every_so_many() -> None:
    schedule = TrainingSchedule(POLICY)
    sampled(schedule, 4)
    assert occasion(schedule, 0.0) is None
    sampled(schedule, 1)
    assert occasion(schedule, 0.0) is Occasion.FIRST
    schedule.started(0.0)
    sampled(schedule, 19)
    assert occasion(schedule, 1_000.0) is None
    sampled(schedule, 1)
    assert occasion(schedule, 29.0) is None  # not in a hurry
    assert occasion(schedule, 30.0) is Occasion.NEW_SAMPLES


def test_soon_after_a_drift_with_the_past_of_that_hardware_cut_and_again_at_each_doubling() -> None:
    schedule = TrainingSchedule(POLICY)
    sampled(schedule, 5)
    schedule.started(0.0)
    schedule.drifted(drift())
    schedule.drifted(drift(since=90.0))  # a second target of the same hardware: the first date holds
    sampled(schedule, 3, hardware=7)
    assert occasion(schedule, 100.0) is None
    sampled(schedule, 1, hardware=7)
    assert schedule.due(9.0) is None
    plan = schedule.due(10.0)
    assert plan is not None
    assert plan.occasion is Occasion.DRIFT
    assert plan.cuts == {7: 50.0}
    schedule.started(10.0)
    sampled(schedule, 3, hardware=7)
    assert occasion(schedule, 20.0) is None
    sampled(schedule, 1, hardware=7)
    assert occasion(schedule, 20.0) is Occasion.DRIFT
    schedule.started(20.0)
    sampled(schedule, 7, hardware=7)
    assert occasion(schedule, 40.0) is None
    sampled(schedule, 1, hardware=7)
    assert occasion(schedule, 40.0) is Occasion.DRIFT


def test_other_hardwares_samples_do_not_hasten_it() -> None:
    schedule = TrainingSchedule(POLICY)
    sampled(schedule, 5)
    schedule.started(0.0)
    schedule.drifted(drift())
    sampled(schedule, 19, hardware=1)
    assert schedule.due(100.0) is None


def test_the_cut_holds_for_every_training_until_the_change_is_history() -> None:
    schedule = TrainingSchedule(POLICY)
    sampled(schedule, 5)
    schedule.started(0.0)
    schedule.drifted(drift())
    now_s = 0.0
    for _ in range(10):
        sampled(schedule, 20, hardware=7)
        now_s += 100.0
        plan = schedule.due(now_s)
        assert plan is not None
        schedule.started(now_s)
        if not plan.cuts:
            assert plan.occasion is Occasion.NEW_SAMPLES
            break
        assert plan.cuts == {7: 50.0}
    assert now_s == 300.0  # 40 samples since the change were trained on


def test_a_later_drift_is_a_drift_of_its_own() -> None:
    schedule = TrainingSchedule(POLICY)
    schedule.drifted(drift())
    sampled(schedule, 40, hardware=7)
    schedule.started(0.0)
    schedule.drifted(drift(since=500.0))
    sampled(schedule, 4, hardware=7)
    plan = schedule.due(100.0)
    assert plan is not None
    assert plan.cuts == {7: 500.0}


def test_hardware_that_no_training_has_seen_is_soon_trained_on_and_only_once() -> None:
    schedule = TrainingSchedule(POLICY)
    sampled(schedule, 5, hardware=1)
    schedule.started(0.0)
    sampled(schedule, 3, hardware=2)
    assert occasion(schedule, 10.0) is None
    sampled(schedule, 1, hardware=2)
    assert occasion(schedule, 9.0) is None  # not in a hurry either
    assert occasion(schedule, 10.0) is Occasion.NEW_HARDWARE
    schedule.started(10.0)
    sampled(schedule, 8, hardware=2)
    sampled(schedule, 8, hardware=1)
    assert occasion(schedule, 1_000.0) is None  # both are known by now
