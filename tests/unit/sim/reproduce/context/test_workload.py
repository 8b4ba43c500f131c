import numpy as np
import pytest

from heliotrope_sim.reproduce.context.mooncake import chains, mooncake
from heliotrope_sim.reproduce.context.profiles import MODELS
from heliotrope_sim.reproduce.context.workload import (
    MAX_CONTEXT_TOKENS,
    Episode,
    Workload,
    generate,
    peak_sessions,
)


@pytest.fixture(scope="module", params=["generated", "mooncake"])
def workload(request: pytest.FixtureRequest) -> Workload:
    return generate(Episode(400, 6.0, 100.0, 3)) if request.param == "generated" else mooncake(400, 3, 10.0)


def test_turns_are_numbered_and_ordered_within_their_session(workload: Workload) -> None:
    same = workload.session[1:] == workload.session[:-1]
    assert (np.diff(workload.session) >= 0).all()
    assert (workload.turn[1:][same] == workload.turn[:-1][same] + 1).all()
    assert (workload.turn[1:][~same] == 1).all()
    assert (np.diff(workload.arrival_seconds)[same] >= 0.0).all()
    assert workload.last.sum() == workload.sessions == len(set(workload.session.tolist()))


def test_lengths_are_positive_and_fit_the_largest_model(workload: Workload) -> None:
    assert (workload.new_tokens >= 1.0).all()
    assert (workload.output_tokens >= 1.0).all()
    assert (workload.history_tokens[workload.turn == 1] == 0.0).all()
    assert workload.context_tokens.max() <= max(m.context_tokens for m in MODELS)
    assert workload.quality.shape == (len(workload), len(MODELS))
    assert ((workload.quality >= 0.0) & (workload.quality <= 1.0)).all()


def test_the_peak_bounds_what_is_active_by_arrivals_alone(workload: Workload) -> None:
    starts = workload.arrival_seconds[workload.turn == 1]
    ends = workload.arrival_seconds[workload.last]
    active = max(int(((starts <= t) & (ends >= t)).sum()) for t in np.sort(starts)[::37])
    assert active <= peak_sessions(workload) <= workload.sessions


def test_a_history_is_what_came_before() -> None:
    w = generate(Episode(400, 6.0, 100.0, 3))
    same = w.session[1:] == w.session[:-1]
    np.testing.assert_allclose(w.history_tokens[1:][same], w.context_tokens[:-1][same])
    assert (
        w.context_tokens.max() <= MAX_CONTEXT_TOKENS + 1e-6
        or (w.turn[w.context_tokens > MAX_CONTEXT_TOKENS] == 1).all()
    )


def test_the_same_episode_is_the_same_and_another_seed_is_not() -> None:
    a, b, c = (generate(Episode(400, 2.0, 100.0, seed)) for seed in (3, 3, 4))
    np.testing.assert_array_equal(a.arrival_seconds, b.arrival_seconds)
    np.testing.assert_array_equal(a.quality, b.quality)
    assert len(a) != len(c) or (a.arrival_seconds != c.arrival_seconds).any()


def test_shares_of_long_histories_are_the_papers() -> None:
    histories = np.concatenate([generate(Episode(24 * d, 24.0, 120.0, d)).history_tokens for d in range(6)])
    assert (histories >= 4096).mean() == pytest.approx(0.403, abs=0.02)
    assert (histories >= 8192).mean() == pytest.approx(0.244, abs=0.02)


def test_mooncakes_chains_are_long_now_and_then() -> None:
    session, before = chains()
    assert len(session) == 12_031
    depth = np.zeros(len(before), dtype=int)
    for i, parent in enumerate(before):
        depth[i] = 1 if parent < 0 else depth[parent] + 1
        assert parent < i
        assert parent < 0 or session[parent] == session[i]
    continued = [p for p in before if p >= 0]
    assert len(continued) == len(set(continued))
    assert [(depth > n).sum() for n in (10, 20, 30)] == [153, 28, 13]
