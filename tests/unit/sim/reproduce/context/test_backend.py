from hypothesis import given
from hypothesis import strategies as st

from heliotrope_sim.reproduce.context.backend import POOL, Backend
from heliotrope_sim.reproduce.context.profiles import DEPLOYMENTS, POOLS

TTL = 1_800.0


def backend(kv_tokens: float = 1_000.0, slots: int = 4) -> Backend:
    b = Backend(slots * 3, 1.0, 1.0, TTL)
    b.kv_tokens = kv_tokens
    return b


def conserved(b: Backend) -> None:
    """What is counted is what there is."""
    for pool in range(POOLS):
        assert b.held[pool] == sum(p == pool for p in b.place.values())
        assert abs(b.used[pool] - sum(tokens for tokens, _ in b.caches[pool].values())) < 1e-6
        assert b.used[pool] <= b.kv_tokens + 1e-6
        assert all(POOL[a] == pool for _, a in b.caches[pool])


turns = st.lists(
    st.tuples(
        st.integers(0, 6),
        st.integers(0, DEPLOYMENTS - 1),
        st.floats(1.0, 900.0),
        st.floats(0.1, 2_000.0),
        st.floats(0.1, 50.0),
        st.booleans(),
    ),
    max_size=60,
)


@given(turns)
def test_sessions_and_tokens_are_conserved(steps: list[tuple[int, int, float, float, float, bool]]) -> None:
    b = backend()
    now, gone = 0.0, set()
    for session, deployment, tokens, gap, takes, last in steps:
        now += gap
        b.advance(now)
        if session in gone:
            continue
        for a, found in b.cached(session, now):
            assert 0.0 < found <= b.kv_tokens
            assert POOL[a] in range(POOLS)
        b.serve(session, deployment, tokens, now, now + takes, last)
        if last:
            gone.add(session)
        conserved(b)
    b.advance(now + 1e9)
    assert set(b.place).isdisjoint(gone)
    conserved(b)


@given(turns)
def test_a_copy_goes_its_own_way(steps: list[tuple[int, int, float, float, float, bool]]) -> None:
    b = backend()
    now = 0.0
    for session, deployment, tokens, gap, takes, _ in steps:
        now += gap
        b.serve(session, deployment, tokens, now, now + takes, False)
    twin = b.copy()
    before = (list(b.held), list(b.used), [dict(c) for c in b.caches], dict(b.place), dict(b.homes))
    twin.serve(99, 0, 500.0, now + 1.0, now + 2.0, True)
    twin.advance(now + 10.0)
    assert before == (b.held, b.used, b.caches, b.place, b.homes)
    conserved(twin)


def test_a_cache_expires_after_its_ttl_from_the_end_of_the_turn() -> None:
    b = backend()
    b.serve(1, 0, 100.0, 0.0, 50.0, False)
    assert b.cached(1, 50.0 + TTL) == [(0, 100.0)]
    assert b.cached(1, 51.0 + TTL) == []


def test_sessions_that_left_give_way_first_then_the_least_recently_used_and_only_as_far_as_needed() -> None:
    b = backend(kv_tokens=1_000.0)
    b.serve(1, 0, 400.0, 0.0, 1.0, False)
    b.serve(2, 0, 300.0, 2.0, 3.0, True)
    b.serve(3, 0, 300.0, 4.0, 5.0, False)
    b.advance(10.0)
    b.serve(4, 0, 350.0, 10.0, 11.0, False)
    assert b.cached(1, 12.0) == [(0, 350.0)]
    assert b.cached(3, 12.0) == [(0, 300.0)]
    assert (2, 0) not in b.caches[0]


def test_a_running_turn_keeps_its_cache_and_what_does_not_fit_is_not_kept() -> None:
    b = backend(kv_tokens=500.0)
    b.serve(1, 0, 400.0, 0.0, 100.0, False)
    b.serve(2, 0, 300.0, 1.0, 100.0, False)
    assert b.cached(1, 101.0) == [(0, 400.0)]
    assert b.cached(2, 101.0) == [(0, 100.0)]


def test_moving_frees_the_old_place_and_keeps_the_old_cache() -> None:
    b = backend()
    b.serve(1, 0, 100.0, 0.0, 1.0, False)
    b.serve(1, 1, 200.0, 2.0, 3.0, False)
    assert (b.held[0], b.held[1]) == (0, 1)
    assert dict(b.cached(1, 4.0)) == {0: 100.0, 1: 200.0}
    b.serve(1, 1, 250.0, 4.0, 5.0, True)
    b.advance(6.0)
    assert b.held == [0] * POOLS
