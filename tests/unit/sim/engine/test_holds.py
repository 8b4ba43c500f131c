"""Cached prefixes held for others stay in memory meanwhile; KV that does not come after all is computed."""

import pytest

from heliotrope.engine.model import EngineModel
from heliotrope.errors import InvalidInputError
from heliotrope_sim.engine import Engine, ExternalKv, KvSource, Medium, Phase, Request, SleepLevel, Status, TierSpec

MS = 1_000_000


def finish(engine: Engine, now: int = 0) -> int:
    while (result := engine.step(now)) is not None:
        now = result.end_ns
    return now


def cached(model: EngineModel) -> tuple[Engine, int]:
    engine = Engine(model)
    engine.submit(Request("owner", 17, 1, (1, 2, 3, 4)), now_ns=0)
    return engine, finish(engine)


def test_what_is_cached_of_a_prompt_can_be_held(model: EngineModel) -> None:
    engine, now = cached(model)
    held = engine.hold_cached("h", (1, 2, 3, 9), now, hold_ns=100)
    assert held is not None
    assert (held.computed, held.status, held.held_until_ns) == (12, Status.HELD, now + 100)
    assert (engine.num_held, engine.kv.used_blocks, engine.kv.cached_blocks) == (1, 3, 4)
    assert engine.release("h") is held
    assert (engine.num_held, engine.kv.used_blocks, engine.kv.cached_blocks) == (0, 0, 4)


def test_what_is_held_is_not_evicted(model: EngineModel) -> None:
    engine, now = cached(model)
    engine.hold_cached("h", (1, 2), now, hold_ns=10**15)
    engine.submit(Request("big", 150, 1), now_ns=now)
    now = finish(engine, now)
    assert engine.kv.match((1, 2, 3, 4), 4) == 2


def test_what_is_in_a_tier_can_be_read_after_a_while(model: EngineModel) -> None:
    tier = TierSpec(KvSource.HOST, Medium.CPU, 40, latency_ns=7, ns_per_block=10, picojoules_per_block=3)
    engine = Engine(model, tiers=(tier,))
    engine.submit(Request("owner", 17, 1, (1, 2, 3, 4)), now_ns=0)
    now = finish(engine)
    engine.submit(Request("big", 155, 1), now_ns=now)
    now = finish(engine, now)
    in_memory = engine.kv.match((1, 2, 3, 4), 4)
    before = engine.transfers.picojoules(10**15)
    held = engine.hold_cached("h", (1, 2, 3, 4, 9), now, hold_ns=100)
    assert in_memory < 4
    assert held is not None
    assert (held.computed, held.loaded_ns - now) == (16, 7 + 10 * (4 - in_memory))
    assert held.load_picojoules == 3 * (4 - in_memory) == engine.transfers.picojoules(10**15) - before
    assert engine.kv.used_blocks == in_memory
    assert engine.release("h") is held


def test_nothing_cached_is_nothing_held(model: EngineModel) -> None:
    engine, now = cached(model)
    assert engine.hold_cached("h", (9,), now, 100) is None
    assert engine.hold_cached("h", (), now, 100) is None
    assert engine.num_held == 0
    engine.hold_cached("h", (1,), now, 100)
    with pytest.raises(InvalidInputError, match="in flight"):
        engine.hold_cached("h", (1,), now, 100)


def test_a_hold_ends_by_itself_unless_it_is_renewed(model: EngineModel) -> None:
    engine, now = cached(model)
    engine.hold_cached("h", (1,), now, hold_ns=100)
    assert engine.renew("h", now + 90, hold_ns=100)
    assert engine.step(now + 150) is None
    assert engine.num_held == 1
    assert engine.next_work_ns == now + 190
    engine.step(now + 190)
    assert (engine.num_held, engine.external.expired_holds) == (0, 1)
    assert not engine.renew("h", now + 190, 100)


def test_sleep_lets_go_of_everything(model: EngineModel) -> None:
    engine, now = cached(model)
    engine.hold_cached("h", (1,), now, hold_ns=100)
    engine.sleep(SleepLevel.WEIGHTS_OFFLOADED, now)
    assert (engine.num_held, engine.kv.used_blocks, engine.kv.cached_blocks) == (0, 0, 0)


def test_kv_that_does_not_come_is_computed(model: EngineModel) -> None:
    engine = Engine(model)
    s = engine.submit(Request("r", 20, 2, (1, 2, 3, 4, 5), ExternalKv(16, 50 * MS, 70, KvSource.P2P)), now_ns=0)
    assert engine.step(0) is None
    assert engine.give_up_load("r", 10 * MS)
    assert not engine.give_up_load("r", 10 * MS)
    assert engine.next_work_ns == 10 * MS
    prefill = engine.step(10 * MS)
    assert prefill is not None
    assert (prefill.phase, prefill.tokens) == (Phase.PREFILL, 20)
    finish(engine, prefill.end_ns)
    assert (s.status, s.cached_tokens, s.external_tokens, s.external_source) == (Status.FINISHED, 0, 0, None)
    assert engine.external.hits[KvSource.P2P] == 0
    # The link has worked all the same.
    assert s.load_picojoules == engine.transfers.picojoules(10**12) == 70


def test_kv_that_will_not_come_is_not_waited_for(model: EngineModel) -> None:
    engine = Engine(model, max_num_seqs=1)
    engine.submit(Request("first", 4, 3), now_ns=0)
    s = engine.submit(Request("r", 20, 1, (), ExternalKv(20, 10**12, 70)), now_ns=0)
    result = engine.step(0)
    assert result is not None
    assert engine.give_up_load("r", 1)
    assert finish(engine, result.end_ns) < 10**12
    assert (s.status, s.load_picojoules) == (Status.FINISHED, 0)
    for name in ("r", "first", "unknown"):
        assert not engine.give_up_load(name, 2)
