"""KV from outside and KV held for others: what it takes, what it blocks, and that nothing is lost."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliotrope.engine.model import EngineModel
from heliotrope.errors import InvalidInputError
from heliotrope_sim.engine import (
    Engine,
    ExternalKv,
    KvSource,
    Phase,
    Request,
    Sequence,
    SleepLevel,
    Status,
    StepResult,
)
from heliotrope_sim.engine.transfer_meter import TransferMeter

MS = 1_000_000


def run(engine: Engine, now: int = 0) -> list[StepResult]:
    """Step whenever there is work, as a driver does."""
    results: list[StepResult] = []
    while True:
        result = engine.step(now)
        if result is not None:
            results.append(result)
            now = result.end_ns
            continue
        work = engine.next_work_ns
        if work is None:
            return results
        assert max(work, engine.energy.settled_ns) > now, "a driver would spin"
        now = max(work, engine.energy.settled_ns)


def test_only_the_rest_is_prefilled_once_the_load_has_ended(model: EngineModel) -> None:
    engine = Engine(model)
    external = ExternalKv(tokens=16, load_ns=50 * MS, load_picojoules=12_345, source=KvSource.P2P)
    s = engine.submit(Request("a", 20, 2, (1, 2, 3, 4, 5), external), now_ns=0)
    assert engine.step(0) is None
    assert (s.status, engine.num_loading, engine.num_waiting, engine.num_running) == (Status.LOADING, 1, 1, 0)
    assert engine.kv.used_blocks == 5
    assert engine.kv.cached_blocks == 0
    assert engine.queued_tokens == 4
    assert engine.next_work_ns == 50 * MS
    prefill = engine.step(50 * MS)
    assert prefill is not None
    assert (prefill.phase, prefill.start_ns, prefill.tokens) == (Phase.PREFILL, 50 * MS, 4)
    assert engine.kv.cached_blocks == 5
    assert prefill.joules == pytest.approx(
        model.energy.prefill_base_joules
        + 4 * model.energy.prefill_joules_per_token
        + (20**2 - 16**2) * model.energy.prefill_joules_per_token_squared
    )
    assert (s.cached_tokens, s.external_tokens, s.external_source) == (16, 16, KvSource.P2P)
    assert engine.counters.prefix_hits == 0
    assert engine.external.hits[KvSource.P2P] == 16
    assert engine.transfers.picojoules(25 * MS) == 6172
    assert engine.transfers.picojoules(50 * MS) == s.load_picojoules == 12_345
    assert s.scheduled_ns == 50 * MS


def test_a_load_does_not_stall_the_batch(model: EngineModel) -> None:
    def steps(with_load: bool) -> list[tuple[str, int, int]]:
        engine = Engine(model)
        engine.submit(Request("batch", 8, 20), now_ns=0)
        if with_load:
            engine.submit(Request("loading", 20, 1, (), ExternalKv(20, 10**10, 0)), now_ns=1)
        return [(r.phase.value, r.start_ns, r.tokens) for r in run(engine) if r.end_ns < 10**10]

    assert steps(with_load=True) == steps(with_load=False)


def test_a_whole_prompt_from_outside_leaves_one_token_to_a_decode_step(model: EngineModel) -> None:
    engine = Engine(model)
    s = engine.submit(Request("a", 16, 3, (1, 2, 3, 4), ExternalKv(16, MS, 7)), now_ns=0)
    results = run(engine)
    assert [(r.phase, r.kv_tokens) for r in results] == [(Phase.DECODE, 15), (Phase.DECODE, 16), (Phase.DECODE, 17)]
    assert results[0].first_tokens == (s,)
    assert s.first_token_ns == results[0].end_ns
    assert s.external_tokens == 15
    assert (s.generated, s.status) == (3, Status.FINISHED)
    assert engine.kv.used_blocks == 0


def test_what_is_cached_here_is_not_loaded(model: EngineModel) -> None:
    engine = Engine(model)
    engine.submit(Request("first", 8, 1, (1, 2)), now_ns=0)
    end = run(engine)[-1].end_ns
    half = engine.submit(Request("half", 20, 1, (1, 2, 3, 4, 5), ExternalKv(16, 100, 1001)), now_ns=end)
    later = run(engine, end)
    assert later[0].start_ns == end + 50
    assert (half.cached_tokens, half.external_tokens, half.load_picojoules) == (16, 8, 500)
    end = later[-1].end_ns
    none = engine.submit(Request("none", 20, 1, (1, 2, 3, 4, 5), ExternalKv(16, 100, 1001)), now_ns=end)
    assert run(engine, end)[0].start_ns == end
    assert (none.cached_tokens, none.external_tokens, none.load_picojoules) == (16, 0, 0)


def test_loads_that_end_join_before_those_that_wait_and_within_the_batch_limit(model: EngineModel) -> None:
    engine = Engine(model, max_num_seqs=1)
    engine.submit(Request("slow", 4, 1, (), ExternalKv(4, 3, 0)), now_ns=0)
    engine.submit(Request("quick", 4, 1, (), ExternalKv(4, 1, 0)), now_ns=0)
    engine.submit(Request("busy", 4, 3), now_ns=0)
    engine.submit(Request("last", 4, 1), now_ns=0)
    results = run(engine)
    assert [s.request.request_id for r in results for s in r.first_tokens] == ["busy", "quick", "slow", "last"]
    assert all(r.participants == 1 for r in results)


def test_a_preempted_sequence_is_computed_and_not_loaded_again(model: EngineModel) -> None:
    engine = Engine(model)
    engine.submit(Request("old", 70, 60), now_ns=0)
    new = engine.submit(Request("new", 70, 60, (), ExternalKv(69, 1, 5)), now_ns=0)
    run(engine)
    assert (new.preemptions, new.load_picojoules, new.generated) == (1, 5, 60)


def test_memory_of_a_load_is_taken_and_the_batch_goes_on_when_it_has_joined(model: EngineModel) -> None:
    engine = Engine(model)
    alone = engine.submit(Request("alone", 40, 60), now_ns=0)
    engine.submit(Request("loading", 112, 1, (), ExternalKv(112, 10**12, 0)), now_ns=0)
    results = run(engine)
    # The one sequence of the batch runs into the memory of the load, waits for it, and ends.
    assert alone.preemptions == 1
    assert alone.status is Status.FINISHED
    assert max(r.start_ns for r in results) >= 10**12
    assert engine.kv.used_blocks == 0


def test_a_held_sequence_keeps_its_blocks_until_it_is_released(model: EngineModel) -> None:
    engine = Engine(model)
    s = engine.submit(Request("p", 10, 1, (1, 2), hold_ns=10**9), now_ns=0)
    result = engine.step(0)
    assert result is not None
    assert result.finished == (s,)
    assert engine.step(result.end_ns) is None
    assert (s.status, engine.num_held, engine.num_running, engine.kv.used_blocks) == (Status.HELD, 1, 0, 3)
    with pytest.raises(InvalidInputError, match="already in flight"):
        engine.submit(Request("p", 1, 1), now_ns=result.end_ns)
    assert engine.abort("p", result.end_ns) is None
    assert engine.release("p") is s
    assert engine.release("p") is None
    assert (s.status, engine.num_held, engine.kv.used_blocks) == (Status.FINISHED, 0, 0)
    assert engine.kv.cached_blocks == 2
    assert engine.external.expired_holds == 0


def test_a_hold_ends_by_itself_and_lets_the_queue_go_on(model: EngineModel) -> None:
    engine = Engine(model)
    held = engine.submit(Request("held", 100, 1, hold_ns=10**9), now_ns=0)
    waiting = engine.submit(Request("waiting", 100, 1), now_ns=0)
    run(engine)
    assert held.finished_ns is not None
    assert waiting.scheduled_ns == held.finished_ns + 10**9
    assert waiting.status is held.status is Status.FINISHED
    assert engine.external.expired_holds == 1


def test_sleep_drops_loads_and_holds(model: EngineModel) -> None:
    engine = Engine(model)
    engine.submit(Request("held", 8, 1, (1, 2), hold_ns=10**9), now_ns=0)
    now = run_until_held(engine)
    loading = engine.submit(Request("loading", 8, 1, (), ExternalKv(8, 10**9, 5)), now_ns=now)
    engine.step(now)
    engine.sleep(SleepLevel.PAUSED, now)
    assert (engine.num_held, engine.num_loading, loading.status) == (1, 0, Status.ABORTED)
    assert engine.next_work_ns is None
    engine.sleep(SleepLevel.DISCARDED, now)
    assert engine.num_held == engine.kv.used_blocks == engine.kv.cached_blocks == 0
    # What the load draws was caused, whoever left.
    assert engine.transfers.picojoules(now + 10**9) == 5


def run_until_held(engine: Engine) -> int:
    """Step until the engine holds a sequence; returns the time."""
    now = 0
    while (result := engine.step(now)) is not None:
        now = result.end_ns
    assert engine.num_held == 1
    return now


@pytest.mark.parametrize(
    ("request_", "path"),
    [
        (Request("x", 4, 1, (), ExternalKv(0, 1, 1)), "external.tokens"),
        (Request("x", 4, 1, (), ExternalKv(5, 1, 1)), "external.tokens"),
        (Request("x", 4, 1, (), ExternalKv(4, -1, 1)), "external"),
        (Request("x", 4, 1, (), ExternalKv(4, 1, -1)), "external"),
        (Request("x", 4, 1, hold_ns=-1), "hold_ns"),
    ],
)
def test_bad_external_kv_and_holds_are_refused(model: EngineModel, request_: Request, path: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        Engine(model).submit(request_, now_ns=0)
    assert error.value.path == path


@given(
    transfers=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 100), st.integers(0, 10**6)), max_size=20),
)
def test_the_energy_of_transfers_grows_to_their_sum(transfers: list[tuple[int, int, int]]) -> None:
    meter, now, before = TransferMeter(), 0, 0
    for gap, duration, picojoules in transfers:
        now += gap
        present = meter.picojoules(now)
        assert present >= before
        meter.start(now, duration, picojoules)
        assert meter.picojoules(now) >= present
        before = present
    assert meter.picojoules(now + 100) == sum(t[2] for t in transfers)
    assert meter.watts(now + 100) == 0


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["submit", "submit", "load", "load", "hold", "abort", "release", "step", "step", "sleep"]),
        st.integers(0, 30 * MS),
        st.integers(1, 100),
        st.integers(1, 60),
        st.integers(0, 5),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(events=EVENTS, max_num_seqs=st.integers(1, 8), budget=st.integers(1, 40))
def test_nothing_is_lost_whatever_is_loaded_held_or_aborted(
    model: EngineModel, events: list[tuple[str, int, int, int, int]], max_num_seqs: int, budget: int
) -> None:
    engine = Engine(model, max_num_seqs=max_num_seqs, max_num_batched_tokens=budget)
    everyone: list[Sequence] = []
    results: list[StepResult] = []
    now = 0
    for index, (what, gap, prompt, output, variant) in enumerate(events):
        now += gap
        if what in ("submit", "load", "hold"):
            hashes = tuple(1000 * variant + i for i in range((prompt + output) // 4)) if variant else ()
            links = ("into it",) if prompt % 2 else ()
            external = ExternalKv(1 + output % prompt, gap * 3, gap, KvSource.P2P, gap * 2, links)
            external = external if what == "load" else None
            hold_ns = 20 * gap if what == "hold" else None
            request = Request(str(index), prompt, output, hashes, external, hold_ns)
            everyone.append(engine.submit(request, now_ns=now))
        elif what == "abort" and everyone:
            engine.abort(everyone[output % len(everyone)].request.request_id, now)
        elif what == "release" and everyone:
            engine.release(everyone[output % len(everyone)].request.request_id)
        elif what == "sleep" and variant == 5:
            engine.sleep(SleepLevel(prompt % 3), now)
            engine.wake(now)
        elif what == "step":
            now = max(now, engine.energy.settled_ns)
            if (result := engine.step(now)) is not None:
                results.append(result)
        assert engine.kv.used_blocks <= engine.kv.capacity_blocks
        assert engine.num_running <= max_num_seqs
    results += run(engine, max(now, engine.energy.settled_ns))

    assert engine.num_running == engine.num_waiting == engine.num_held == engine.kv.used_blocks == 0
    emitted = Counter(s for r in results for s in r.emitted)
    for s in everyone:
        assert s.status in (Status.FINISHED, Status.ABORTED)
        assert emitted[s] == s.generated
        assert s.generated == s.request.output_tokens or s.status is Status.ABORTED
        assert s.cached_tokens < max(2, s.prefill_target)
        assert s.first_token_ns is None or s.generated
    assert sum(s.external_tokens for s in everyone) == sum(engine.external.hits.values())
    assert sum(s.picojoules for s in everyone) == sum(r.picojoules for r in results) == engine.energy.busy_picojoules
    assert sum(s.load_picojoules for s in everyone) == engine.transfers.picojoules(10**18)
