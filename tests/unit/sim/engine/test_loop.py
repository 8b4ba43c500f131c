"""The loop: what it conserves, in which order it serves, and that it does the same thing every time."""

import hashlib
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliotrope.engine.model import EngineModel
from heliotrope.errors import InvalidInputError
from heliotrope_sim.engine import Engine, Phase, Request, Sequence, SleepLevel, Status, StepResult

CAPACITY = 160


def run(engine: Engine, now: int = 0) -> list[StepResult]:
    """Step until there is nothing to do, checking every step."""
    results = []
    while (result := engine.step(now)) is not None:
        check(engine, result)
        results.append(result)
        now = result.end_ns
    return results


def check(engine: Engine, result: StepResult) -> None:
    assert engine.kv.used_blocks <= engine.kv.capacity_blocks
    assert engine.num_running <= engine.max_num_seqs
    assert result.tokens <= (engine.max_num_batched_tokens if result.phase is Phase.PREFILL else engine.max_num_seqs)
    assert result.duration_ns > 0
    assert set(result.first_tokens) <= set(result.emitted)
    assert set(result.finished) <= set(result.emitted)


def test_one_request_takes_what_the_model_says(model: EngineModel) -> None:
    engine = Engine(model)
    sequence = engine.submit(Request("a", 10, 3), now_ns=0)
    prefill, *decodes = run(engine)
    assert prefill.phase is Phase.PREFILL
    assert prefill.duration_seconds == pytest.approx(float(model.prefill_seconds(10.0)))
    assert prefill.joules == pytest.approx(float(model.prefill_joules(10.0)))
    assert prefill.first_tokens == prefill.emitted == (sequence,)
    assert [d.phase for d in decodes] == [Phase.DECODE] * 2
    for d, kv_tokens in zip(decodes, (10, 11), strict=True):
        assert d.kv_tokens == kv_tokens
        assert d.duration_seconds == pytest.approx(float(model.decode_seconds(1.0, float(kv_tokens))))
        assert d.joules == pytest.approx(float(model.decode_joules(1.0, float(kv_tokens))))
    assert decodes[-1].finished == (sequence,)
    assert sequence.status is Status.FINISHED
    assert sequence.first_token_ns == prefill.end_ns
    assert sequence.finished_ns == decodes[-1].end_ns
    assert engine.num_running == engine.kv.used_blocks == 0


def test_a_long_prompt_is_split_and_stalls_the_batch(model: EngineModel) -> None:
    engine = Engine(model)
    engine.submit(Request("short", 4, 5), now_ns=0)
    results = [engine.step(0)]
    assert results[0] is not None
    engine.submit(Request("long", 70, 2), now_ns=1)
    now = results[0].end_ns
    rest = run(engine, now)
    # The first iteration decodes, then the long prompt takes the budget of 32 three times, then everyone decodes.
    assert [(r.phase.value, r.tokens) for r in rest[:5]] == [
        ("decode", 1),
        ("prefill", 32),
        ("prefill", 32),
        ("prefill", 6),
        ("decode", 2),
    ]
    # The attention terms of the chunks add up to those of the whole prompt.
    assert sum(r.joules for r in rest[1:4]) == pytest.approx(
        3 * model.energy.prefill_base_joules
        + 70 * model.energy.prefill_joules_per_token
        + 70**2 * model.energy.prefill_joules_per_token_squared
    )


def test_admission_stops_at_the_batch_limit_and_is_first_come_first_served(model: EngineModel) -> None:
    engine = Engine(model, max_num_seqs=2)
    for name in "abcd":
        engine.submit(Request(name, 4, 3), now_ns=0)
    first = [s.request.request_id for r in run(engine) for s in r.first_tokens]
    assert first == ["a", "b", "c", "d"]


def test_a_request_that_does_not_fit_is_not_overtaken(model: EngineModel) -> None:
    engine = Engine(model)
    for name, prompt in (("big", 120), ("bigger", 100), ("small", 4)):
        engine.submit(Request(name, prompt, 2), now_ns=0)
    result = engine.step(0)
    assert result is not None
    assert (engine.num_running, engine.num_waiting) == (1, 2)
    assert [s.request.request_id for r in run(engine, result.end_ns) for s in r.finished] == ["big", "bigger", "small"]


def test_a_request_is_not_admitted_before_it_arrives(model: EngineModel) -> None:
    engine = Engine(model)
    engine.submit(Request("later", 4, 1), now_ns=500)
    assert engine.step(499) is None
    assert engine.step(500) is not None


def test_the_newest_is_preempted_when_memory_runs_out_and_is_computed_again(model: EngineModel) -> None:
    engine = Engine(model)
    old = engine.submit(Request("old", 70, 60), now_ns=0)
    new = engine.submit(Request("new", 70, 60), now_ns=0)
    results = run(engine)
    assert [s.request.request_id for r in results for s in r.preempted] == ["new"]
    assert (old.preemptions, new.preemptions, engine.counters.preemptions) == (0, 1, 1)
    assert old.finished_ns is not None
    assert new.finished_ns is not None
    assert old.finished_ns < new.finished_ns
    emitted = Counter(s.request.request_id for r in results for s in r.emitted)
    assert emitted == {"old": 60, "new": 60}
    assert [s.request.request_id for r in results for s in r.first_tokens] == ["old", "new"]
    # What the second prefill computes is prompt and output so far.
    again = [r for r in results if r.phase is Phase.PREFILL][-1]
    assert sum(r.tokens for r in results if r.phase is Phase.PREFILL) == 140 + 70 + new_tokens_at(results, new)
    assert again.emitted == (new,)
    assert again.first_tokens == ()


def new_tokens_at(results: list[StepResult], sequence: Sequence) -> int:
    """Tokens that a sequence had when it was preempted."""
    count = 0
    for r in results:
        if sequence in r.preempted:
            return count
        count += sequence in r.emitted
    raise AssertionError("never preempted")


def test_a_preempted_sequence_finds_its_own_blocks_again(model: EngineModel) -> None:
    engine = Engine(model)
    engine.submit(Request("old", 70, 60), now_ns=0)
    hashes = tuple(range(1, 33))
    new = engine.submit(Request("new", 70, 60, hashes), now_ns=0)
    results = run(engine)
    recomputed = sum(r.tokens for r in results if r.phase is Phase.PREFILL) - 140
    assert new.preemptions == 1
    assert recomputed < 70


def test_a_shared_prefix_is_computed_once(model: EngineModel) -> None:
    engine = Engine(model)
    hashes = tuple(range(1, 6))
    one = engine.submit(Request("one", 21, 2, hashes), now_ns=0)
    results = run(engine)
    two = engine.submit(Request("two", 20, 2, hashes), now_ns=results[-1].end_ns)
    again = run(engine, results[-1].end_ns)
    assert one.cached_tokens == 0
    # Five blocks are cached, but the block of the last prompt token is always computed.
    assert two.cached_tokens == 16
    assert again[0].tokens == 4
    assert (engine.counters.prefix_queries, engine.counters.prefix_hits) == (41, 16)
    assert two.picojoules < one.picojoules
    assert again[0].joules == pytest.approx(
        model.energy.prefill_base_joules
        + 4 * model.energy.prefill_joules_per_token
        + (20**2 - 16**2) * model.energy.prefill_joules_per_token_squared
    )


def test_output_blocks_serve_the_next_turn(model: EngineModel) -> None:
    engine = Engine(model)
    turn = engine.submit(Request("turn-1", 8, 9, (1, 2, 3, 4)), now_ns=0)
    end = run(engine)[-1].end_ns
    # 16 tokens are computed: the ninth output token never had its KV written.
    assert turn.computed == 16
    following = engine.submit(Request("turn-2", 24, 1, (1, 2, 3, 4, 5, 6)), now_ns=end)
    run(engine, end)
    assert following.cached_tokens == 16


def test_the_clock_changes_time_and_power_of_the_next_step(model: EngineModel) -> None:
    def one(mhz: int | None) -> list[StepResult]:
        engine = Engine(model)
        if mhz is not None:
            assert engine.set_clock(mhz, 0) == mhz
        engine.submit(Request("a", 20, 4), now_ns=0)
        return run(engine)

    fast, slow = one(None), one(600)
    for f, s in zip(fast, slow, strict=True):
        assert s.duration_ns > f.duration_ns
        assert s.joules / s.duration_seconds < f.joules / f.duration_seconds
    # Prefill is bound by compute, decode by memory.
    assert slow[0].duration_ns / fast[0].duration_ns == pytest.approx(2.0)
    assert slow[1].duration_ns / fast[1].duration_ns == pytest.approx(2.0**0.2)
    assert Engine(model).set_clock(99_999, 0) == 1200


def test_the_clock_changes_the_standing_power_from_then_on(model: EngineModel) -> None:
    engine = Engine(model)
    engine.set_clock(600, 10**9)
    # Idle power falls half of the way from 100 W to the 20 W of an unloaded device.
    assert engine.energy.picojoules(2 * 10**9) == (100 + 60) * 10**12
    engine.sleep(SleepLevel.DISCARDED, 2 * 10**9)
    assert engine.energy.picojoules(3 * 10**9) == (100 + 60 + 30) * 10**12


def test_sleep_aborts_forgets_and_draws_less(model: EngineModel) -> None:
    engine = Engine(model)
    hashes = (1, 2, 3)
    engine.submit(Request("done", 12, 1, hashes), now_ns=0)
    now = run(engine)[-1].end_ns
    engine.submit(Request("running", 8, 50), now_ns=now)
    step = engine.step(now)
    assert step is not None
    engine.submit(Request("queued", 8, 50), now_ns=now + 1)
    aborted = engine.sleep(SleepLevel.WEIGHTS_OFFLOADED, now + 1)
    assert [s.request.request_id for s in aborted] == ["running", "queued"]
    assert {s.status for s in aborted} == {Status.ABORTED}
    assert engine.kv.used_blocks == engine.kv.cached_blocks == 0
    end = step.end_ns
    before = engine.energy.picojoules(end)
    assert engine.energy.picojoules(end + 10**9) - before == 40 * 10**12
    patient = engine.submit(Request("patient", 12, 1, hashes), now_ns=end)
    assert engine.step(end + 10**9) is None
    engine.wake(end + 10**9)
    run(engine, end + 10**9)
    assert patient.status is Status.FINISHED
    assert patient.cached_tokens == 0


def test_a_pause_keeps_the_cache_and_the_idle_power(model: EngineModel) -> None:
    engine = Engine(model)
    engine.submit(Request("a", 12, 1, (1, 2, 3)), now_ns=0)
    end = run(engine)[-1].end_ns
    engine.sleep(SleepLevel.PAUSED, end)
    assert engine.kv.cached_blocks == 3
    assert engine.energy.picojoules(end + 10**9) - engine.energy.picojoules(end) == 100 * 10**12


@pytest.mark.parametrize(
    ("request_", "path"),
    [
        (Request("x", 0, 1), "prompt_tokens"),
        (Request("x", 1, 0), "output_tokens"),
        (Request("x", 100, 61), "prompt_tokens"),
    ],
)
def test_bad_requests_are_refused(model: EngineModel, request_: Request, path: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        Engine(model).submit(request_, now_ns=0)
    assert error.value.path == path


def test_an_id_in_flight_is_refused_and_free_again_after(model: EngineModel) -> None:
    engine = Engine(model)
    engine.submit(Request("a", 4, 1), now_ns=0)
    with pytest.raises(InvalidInputError, match="already in flight"):
        engine.submit(Request("a", 4, 1), now_ns=0)
    end = run(engine)[-1].end_ns
    engine.submit(Request("a", 4, 1), now_ns=end)


def test_an_abort_in_its_last_step_is_an_abort(model: EngineModel) -> None:
    engine = Engine(model)
    engine.submit(Request("a", 4, 1), now_ns=0)
    result = engine.step(0)
    assert result is not None
    assert result.finished
    sequence = engine.abort("a", 1)
    assert sequence is not None
    assert engine.kv.used_blocks == 0
    assert engine.step(result.end_ns) is None
    assert sequence.status is Status.ABORTED
    assert engine.abort("a", 2) is None


def test_steps_do_not_overlap(model: EngineModel) -> None:
    engine = Engine(model)
    engine.submit(Request("a", 4, 9), now_ns=0)
    result = engine.step(0)
    assert result is not None
    with pytest.raises(ValueError, match="settled up to"):
        engine.step(result.end_ns - 1)


@st.composite
def workloads(draw: st.DrawFn) -> list[tuple[str, int, int, int, int]]:
    """Events: (what, gap in ns, prompt, output, shared prefix or index)."""
    return draw(
        st.lists(
            st.tuples(
                st.sampled_from(["submit", "submit", "submit", "abort", "step", "step", "clock", "sleep"]),
                st.integers(0, 30_000_000),
                st.integers(1, 100),
                st.integers(1, 60),
                st.integers(0, 5),
            ),
            max_size=60,
        )
    )


@settings(deadline=None)
@given(workload=workloads(), max_num_seqs=st.integers(1, 8), budget=st.integers(1, 40))
def test_tokens_energy_and_memory_are_conserved_whatever_happens(
    model: EngineModel, workload: list[tuple[str, int, int, int, int]], max_num_seqs: int, budget: int
) -> None:
    engine = Engine(model, max_num_seqs=max_num_seqs, max_num_batched_tokens=budget)
    everyone: list[Sequence] = []
    results: list[StepResult] = []
    now = asleep_until = 0
    for index, (what, gap, prompt, output, variant) in enumerate(workload):
        now += gap
        if what == "submit":
            hashes = tuple(1000 * variant + i for i in range((prompt + output) // 4)) if variant else ()
            everyone.append(engine.submit(Request(str(index), prompt, output, hashes), now_ns=now))
        elif what == "abort" and everyone:
            engine.abort(everyone[output % len(everyone)].request.request_id, now)
        elif what == "clock":
            engine.set_clock(300 + prompt * 9, now)
        elif what == "sleep" and variant == 5:
            engine.sleep(SleepLevel(prompt % 3), now)
            asleep_until = index + 3
        elif what == "step":
            now = max(now, engine.energy.settled_ns)
            if (result := engine.step(now)) is not None:
                check(engine, result)
                results.append(result)
        if index == asleep_until:
            engine.wake(now)
    engine.wake(now)
    results += run(engine, max(now, engine.energy.settled_ns))

    assert engine.num_running == engine.num_waiting == engine.kv.used_blocks == 0
    emitted = Counter(s for r in results for s in r.emitted)
    for s in everyone:
        assert s.status in (Status.FINISHED, Status.ABORTED)
        assert emitted[s] == s.generated
        assert s.generated == s.request.output_tokens or s.status is Status.ABORTED
    assert sum(r.tokens for r in results if r.phase is Phase.DECODE) == engine.counters.decode_tokens
    assert sum(r.tokens for r in results if r.phase is Phase.PREFILL) == engine.counters.prefill_tokens

    # Every picojoule of every step belongs to a sequence; the rest is idle or asleep.
    end = engine.energy.settled_ns
    busy = sum(s.picojoules for s in everyone)
    assert busy == sum(r.picojoules for r in results) == engine.energy.busy_picojoules
    assert engine.energy.picojoules(end) == busy + engine.energy.idle_picojoules + engine.energy.asleep_picojoules


def test_first_tokens_come_in_the_order_of_arrival_without_preemption(model: EngineModel) -> None:
    rng = random.Random(7)
    engine = Engine(model)
    for i in range(60):
        engine.submit(Request(str(i), rng.randint(1, 30), rng.randint(1, 4)), now_ns=0)
    results = run(engine)
    assert engine.counters.preemptions == 0
    assert [int(s.request.request_id) for r in results for s in r.first_tokens] == list(range(60))


def trace_of(model: EngineModel, seed: int) -> str:
    """A digest of every step of a seeded workload with arrivals, aborts, preemptions and shared prefixes."""
    rng = random.Random(seed)
    engine = Engine(model)
    digest = hashlib.sha256()
    now = 0
    for i in range(300):
        prompt, output = rng.randint(1, 90), rng.randint(1, 50)
        base = rng.randint(0, 4) * 1000
        hashes = [base + j for j in range((prompt + output) // 4)] if base else []
        engine.submit(Request(str(i), prompt, output, hashes), now_ns=now)
        if i % 17 == 3:
            engine.abort(str(i - 2), now)
        for _ in range(rng.randint(0, 20)):
            if (result := engine.step(now)) is None:
                break
            now = result.end_ns
            digest.update(
                repr(
                    (
                        result.phase.value,
                        result.duration_ns,
                        result.picojoules,
                        [s.request.request_id for s in result.emitted],
                        [s.request.request_id for s in result.preempted],
                        engine.kv.used_blocks,
                    )
                ).encode()
            )
    digest.update(repr((engine.counters, engine.energy.picojoules(now))).encode())
    return digest.hexdigest()


def test_the_same_workload_gives_the_same_trace(model: EngineModel) -> None:
    assert trace_of(model, 1) == trace_of(model, 1)
    assert trace_of(model, 1) != trace_of(model, 2)
    # A change here changes every simulation: it must be meant.
    assert trace_of(model, 1) == "04c77d2fa62b69bad42fd975b40204eb28f952df539a4b6d68a93854bd8498fe"
