"""Cached prefixes held for others: what is read stays in memory meanwhile, and in the cache afterwards."""

import pytest

from heliotrope.engine.model import EngineModel
from heliotrope.errors import InvalidInputError
from heliotrope_sim.engine import Engine, Request, SleepLevel, Status


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
