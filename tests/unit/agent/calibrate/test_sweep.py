import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.api.v1alpha1.workloadvariant import Phase
from heliotrope.errors import InvalidInputError
from heliotrope_agent.calibrate.clocks import best_clock, spread_out
from heliotrope_agent.calibrate.errors import CalibrationError, RecordError
from heliotrope_agent.calibrate.profile import completed, energy_points, patch, phase_profiles, phases_of, read_variant
from heliotrope_agent.calibrate.record import Gpu, Idle, Kind, Record, Size, Subject, Window, going_on, read, written
from heliotrope_agent.calibrate.settings import Sweep
from heliotrope_agent.calibrate.sizes import answer_tokens, most_answer_tokens, prompts, skipped_tokens
from heliotrope_agent.calibrate.sweep import Task, Work, estimate, next_task, points, usual_batch
from heliotrope_agent.calibrate.window import Mark, Measured

CLOCKS = tuple(range(360, 1411, 15))
SWEEP = Sweep(clocks=spread_out(CLOCKS, 6), candidates=CLOCKS, decode_batches=(8, 32), prefill_batches=(16,))
SUBJECT = Subject("http://e", "m", "0.32", 4096, (Gpu("GPU-1", "A100"),))


def measured(
    joules: float, rate: float = 1_000.0, seconds: float | None = 0.02, marks: tuple[Mark, ...] = ()
) -> Measured:
    return Measured(
        start_s=0.0,
        end_s=10.0,
        tokens=round(10 * rate),
        joules=10 * rate * joules,
        joules_by_gpu=(10 * rate * joules,),
        joules_per_token=joules,
        tokens_per_second=rate,
        watts=rate * joules,
        timing_percent=0.2,
        edges=40,
        mean_batch=8.0,
        context_tokens=400.0,
        tokens_per_step=8.0,
        seconds_per_token=seconds,
        effective_mhz=900,
        temperature_celsius=60,
        reasons=(),
        marks=marks,
    )


def truth(phase: Phase, mhz: int) -> float:
    best = 540 if phase is Phase.PREFILL else 810
    return 0.1 * (mhz / best + best / mhz)


def done(task: Task, record: Record, rng: random.Random, noise: float) -> Record:
    """What a task adds."""
    if task.work is Work.IDLE:
        return replace(record, idle=(*record.idle, Idle(task.mhz, 60.0, 10.0, 50)))
    assert task.phase is not None
    assert task.batch is not None
    if task.work is Work.PILOT:
        return replace(record, sizes=(*record.sizes, Size(task.phase, task.batch, 100, 1_000.0)))
    kind = Kind.DRIFT if task.work is Work.DRIFT else Kind.REFINE if task.refining else Kind.SWEEP
    seconds = 0.001 * task.batch if task.phase is Phase.DECODE else None
    value = measured(truth(task.phase, task.mhz) * (1.0 + rng.gauss(0.0, noise)), seconds=seconds)
    window = Window(task.phase, task.batch, task.mhz, kind, 0.0, value)
    return replace(record, windows=(*record.windows, window))


def run(sweep: Sweep, noise: float = 0.002, seed: int = 1) -> tuple[Record, list[Task]]:
    rng, record, tasks = random.Random(seed), Record(sweep, SUBJECT, 0.0), []
    while (task := next_task(sweep, record)) is not None:
        tasks.append(task)
        assert len(tasks) < 2_000
        record = done(task, record, rng, noise)
    return record, tasks


def test_everything_is_measured_and_clocks_change_seldom() -> None:
    record, tasks = run(SWEEP)
    assert [task.work for task in tasks[:3]] == [Work.PILOT] * 3
    for mhz in SWEEP.clocks:
        assert record.idle_at(mhz) is not None
        for phase, batch in SWEEP.loads:
            assert len(record.windows_of(phase, batch, mhz)) >= SWEEP.min_repeats
    clocks = [task.mhz for task in tasks]
    changes = sum(a != b for a, b in pairwise(clocks))
    assert changes <= len({*clocks}) + len(SWEEP.phases)
    assert [task.work for task in tasks[-2:]] == [Work.DRIFT] * 2
    for phase, best in ((Phase.PREFILL, 540), (Phase.DECODE, 810)):
        assert abs(best_clock(points(record, phase, usual_batch(SWEEP, record, phase))) - best) <= 15
        refined = {each.mhz for each in record.windows if each.phase is phase and each.kind is Kind.REFINE}
        assert 0 < len(refined) <= SWEEP.refinements


@given(st.integers(0, 400))
def test_a_record_goes_on_from_anywhere_through_its_file(stop: int) -> None:
    whole, tasks = run(SWEEP)
    rng, record = random.Random(1), Record(SWEEP, SUBJECT, 0.0)
    for _ in range(min(stop, len(tasks))):
        task = next_task(SWEEP, record)
        assert task is not None
        record = done(task, record, rng, 0.002)
    record = read(written(record, complete=False))
    rest = []
    while (task := next_task(SWEEP, record)) is not None:
        rest.append(task)
        record = done(task, record, rng, 0.002)
    assert [*tasks[: min(stop, len(tasks))], *rest] == tasks
    assert record == whole


def test_what_is_left_falls_to_nothing() -> None:
    record, rng = Record(SWEEP, SUBJECT, 0.0), random.Random(2)
    first = estimate(SWEEP, record)
    count = 0
    while (task := next_task(SWEEP, record)) is not None:
        record = done(task, record, rng, 0.002)
        count += 1
    assert estimate(SWEEP, record).steps == 0
    assert estimate(SWEEP, record).seconds == 0.0
    assert 0.4 * first.steps <= count <= 1.6 * first.steps


def test_windows_that_scatter_are_repeated_up_to_a_limit() -> None:
    _, calm = run(SWEEP, noise=0.002)
    record, wild = run(SWEEP, noise=0.2)
    assert len(wild) > len(calm)
    most = max(len(record.windows_of(p, b, mhz)) for p, b in SWEEP.loads for mhz in CLOCKS)
    assert most == SWEEP.max_repeats


def test_windows_that_do_not_count_are_tried_again_and_then_given_up() -> None:
    sweep = replace(SWEEP, phases=(Phase.DECODE,), decode_batches=(8,), refinements=0)
    record, tries = Record(sweep, SUBJECT, 0.0), 0
    while (task := next_task(sweep, record)) is not None:
        record = done(task, record, random.Random(1), 0.0)
        if task.work in {Work.MEASURE, Work.DRIFT} and task.mhz == 1410:
            tries += 1
            last = record.windows[-1]
            hot = replace(last, measured=replace(last.measured, marks=(Mark.THROTTLED,)))
            record = replace(record, windows=(*record.windows[:-1], hot))
        assert tries < 50
    (found,) = phase_profiles(record)
    assert found.left_out_mhz == (1410,)
    assert found.drift_percent is None
    assert 1410 not in {point.mhz for point in found.points}


@pytest.mark.parametrize(
    ("batch", "tpot", "wanted"), [(None, None, 32), (8, None, 8), (None, 0.02, 8), (None, 0.032, 32), (None, 0.001, 8)]
)
def test_the_usual_batch_is_named_or_keeps_the_promise(batch: int | None, tpot: float | None, wanted: int) -> None:
    sweep = replace(SWEEP, batch=batch, tpot_seconds=tpot)
    record, _ = run(sweep)
    assert usual_batch(sweep, record, Phase.DECODE) == wanted
    assert usual_batch(sweep, record, Phase.PREFILL) == 16
    assert {each.batch for each in phase_profiles(record)} == {16, wanted}


def test_a_profile_passes_the_rules_of_the_resource_whatever_was_measured() -> None:
    record, _ = run(SWEEP, noise=0.05)
    found = phase_profiles(record)
    variant = """
apiVersion: heliotrope.io/v1alpha1
kind: WorkloadVariant
metadata: {name: v}
spec:
  model: m
  endpointSelector: {matchLabels: {a: b}}
  accelerator: {type: A100}
  energyProfile: [{phase: decode, smClockMhz: 1, tokensPerSecond: "1", joulesPerToken: "1", watts: 1}]
"""
    document, _ = read_variant(variant)
    whole, again = read_variant(completed(document, found))
    assert again.spec.energy_profile == energy_points(found)
    assert whole["spec"]["model"] == "m"
    for point in again.spec.energy_profile:
        assert point.uncertainty_percent is not None
        assert point.uncertainty_percent >= 1
    text = patch(found, "v", "ns")
    assert text.count("phase:") == len(energy_points(found))
    assert "name: v" in text


def test_uncertainty_is_rounded_up_and_unknown_where_there_is_one_window() -> None:
    sweep = replace(SWEEP, phases=(Phase.DECODE,), decode_batches=(8,), min_repeats=1, max_repeats=1, refinements=0)
    record, _ = run(sweep)
    assert all(point.uncertainty_percent is None for point in energy_points(phase_profiles(record)))


def test_nothing_that_counts_is_an_error() -> None:
    with pytest.raises(CalibrationError, match="no window of prefill counts: none was measured"):
        phase_profiles(Record(SWEEP, SUBJECT, 0.0))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("kind: Pod", "holds 0"),
        ("a: [", "is no YAML"),
        ("apiVersion: heliotrope.io/v1alpha1\nkind: WorkloadVariant", "spec"),
    ],
)
def test_another_file_is_no_variant(text: str, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        read_variant(text)


def test_a_record_of_something_else_is_not_gone_on_from() -> None:
    record = Record(SWEEP, SUBJECT, 0.0)
    assert going_on(record, replace(SWEEP, max_repeats=9), SUBJECT).sweep.max_repeats == 9
    with pytest.raises(RecordError, match="another gpus"):
        going_on(record, SWEEP, replace(SUBJECT, gpus=()))
    with pytest.raises(RecordError, match=r"another window_seconds: 10\.0, now 5\.0"):
        going_on(record, replace(SWEEP, window_seconds=5.0), SUBJECT)
    with pytest.raises(RecordError, match="no record of a calibration"):
        read("{}")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"clocks": ()}, "--clocks"),
        ({"phases": ()}, "--phase"),
        ({"decode_batches": (0,)}, "--batches"),
        ({"batch": 7}, "7 is none of --batches 8, 32"),
        ({"batch": 8, "tpot_seconds": 1.0}, "either --batch or --tpot-ms"),
        ({"min_repeats": 9}, "--repeats"),
        ({"window_seconds": 0.1}, "--window-seconds: 0.1 is not between 0.5 and 600"),
        ({"refinements": 99}, "--refinements"),
        ({"prompt_tokens": 0}, "--prompt-tokens"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused(changes: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        replace(SWEEP, **changes).check()  # type: ignore[arg-type]
    SWEEP.check()


def test_windows_are_filled_with_enough_work() -> None:
    assert (
        0.85 * answer_tokens(10.0, 0.02) - skipped_tokens(answer_tokens(10.0, 0.02))
        <= 10.0 / 0.02
        <= answer_tokens(10.0, 0.02)
    )
    assert prompts(10.0, 16_384.0, 2_048, 8_192.0) >= 80
    assert prompts(0.1, 16_384.0, 2_048, 8_192.0) >= 40
    assert most_answer_tokens(100, None) > 1_000
    assert most_answer_tokens(100, 200) == 99
    with pytest.raises(InvalidInputError, match="leaves no room"):
        most_answer_tokens(190, 200)


def test_roles_have_phases() -> None:
    from heliotrope.api.v1alpha1.common import Role

    assert phases_of(Role.BOTH) == (Phase.PREFILL, Phase.DECODE)
    assert phases_of(Role.DECODE) == (Phase.DECODE,)
