"""Scores: bounds, order, and what is unknown."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.epp.plugins.builders import NOW_S, metrics, option, request, state

from heliotrope_epp.datalayer.inflight import Dispatch
from heliotrope_epp.plugins.interface import Option, Scorer
from heliotrope_epp.plugins.options import Options
from heliotrope_epp.plugins.scorers.kv_cache_utilization import KvCacheUtilizationScorer
from heliotrope_epp.plugins.scorers.power_headroom import PowerHeadroomScorer
from heliotrope_epp.plugins.scorers.prefix_cache import PrefixCacheScorer, PrefixCacheScorerParameters
from heliotrope_epp.plugins.scorers.queue_depth import QueueScorer

REQUEST = request(b"x" * 4000)  # 1000 tokens


def prefix_scorer(text: str = "{}") -> PrefixCacheScorer:
    return PrefixCacheScorer(PrefixCacheScorerParameters.model_validate_json(text))


SCORERS: list[Scorer] = [
    QueueScorer(),
    KvCacheUtilizationScorer(),
    PowerHeadroomScorer(),
    prefix_scorer(),
    prefix_scorer('{"matchLengthWeight": 0.5}'),
]

number = st.one_of(st.none(), st.floats(0.0, 1e6))
share = st.one_of(st.none(), st.floats(0.0, 1.0))


scrapes = st.one_of(
    st.none(),
    st.tuples(number, number, share, st.floats(0.0, 10.0)).map(
        lambda drawn: replace(
            metrics(running=drawn[0], waiting=drawn[1], kv_usage=drawn[2], age_s=drawn[3]),
            power_watts=drawn[0],
            power_limit_watts=drawn[1],
            throttled=None if drawn[2] is None else drawn[2] > 0.5,
        )
    ),
)
endpoints = st.tuples(scrapes, st.floats(0.0, REQUEST.prompt_tokens))


def options() -> st.SearchStrategy[list[Option]]:
    return st.lists(endpoints, min_size=1, max_size=6).map(
        lambda drawn: [option(state(f"e{i}", metrics=scrape), cached) for i, (scrape, cached) in enumerate(drawn)]
    )


@settings(deadline=None, max_examples=60)
@given(options(), st.randoms(use_true_random=False))
def test_scores_are_between_0_and_1_and_do_not_depend_on_the_order(given_options: list[Option], random: Random) -> None:
    order = list(range(len(given_options)))
    random.shuffle(order)
    for scorer in SCORERS:
        scores = scorer.score(REQUEST, Options.of(given_options))
        assert scores.shape == (len(given_options),)
        assert ((scores >= 0.0) & (scores <= 1.0)).all()
        shuffled = scorer.score(REQUEST, Options.of([given_options[i] for i in order]))
        np.testing.assert_array_equal(shuffled, scores[order])


def queues(*waiting: float | None) -> list[Option]:
    return [option(state(f"e{i}", metrics=metrics(waiting=w))) for i, w in enumerate(waiting)]


def test_queue_is_linear_between_the_shortest_and_the_longest() -> None:
    assert QueueScorer().score(REQUEST, Options.of(queues(2.0, 6.0, 4.0))).tolist() == [1.0, 0.0, 0.5]


def test_equal_queues_are_all_best() -> None:
    assert QueueScorer().score(REQUEST, Options.of(queues(3.0, 3.0))).tolist() == [1.0, 1.0]


def test_unknown_queue_is_worst_and_does_not_move_the_others() -> None:
    assert QueueScorer().score(REQUEST, Options.of(queues(None, 2.0, 6.0))).tolist() == [0.0, 1.0, 0.0]
    assert QueueScorer().score(REQUEST, Options.of(queues(None, 2.0))).tolist() == [0.0, 1.0]
    assert QueueScorer().score(REQUEST, Options.of(queues(None, None))).tolist() == [0.0, 0.0]


def test_requests_dispatched_since_the_scrape_count_as_queued() -> None:
    busy, idle = state("busy", metrics=metrics()), state("idle", metrics=metrics())
    busy.inflight.add(Dispatch(NOW_S, 1000.0, 1000.0, first_token_due_s=NOW_S + 1.0), 0.1)
    assert QueueScorer().score(REQUEST, Options.of([option(busy), option(idle)])).tolist() == [0.0, 1.0]


def test_the_engines_own_queue_counts_requests_that_others_sent() -> None:
    ours, others = state("ours", metrics=metrics(waiting=0.0)), state("others", metrics=metrics(waiting=5.0))
    ours.inflight.add(Dispatch(NOW_S, 1000.0, 1000.0, first_token_due_s=NOW_S + 1.0), 0.1)
    assert QueueScorer().score(REQUEST, Options.of([option(ours), option(others)])).tolist() == [1.0, 0.0]


def test_kv_cache_score_is_what_is_free() -> None:
    scored = [option(state(f"e{i}", metrics=metrics(kv_usage=u))) for i, u in enumerate((0.25, None, 1.0))]
    assert KvCacheUtilizationScorer().score(REQUEST, Options.of(scored)).tolist() == [0.75, 0.0, 0.0]


def test_stale_kv_usage_is_unknown() -> None:
    scored = [option(state("old", metrics=metrics(kv_usage=0.1, age_s=2.5))), option(state("never"))]
    assert KvCacheUtilizationScorer().score(REQUEST, Options.of(scored)).tolist() == [0.0, 0.0]


def cached(*tokens: float) -> list[Option]:
    return [option(state(f"e{i}"), t) for i, t in enumerate(tokens)]


def test_prefix_score_is_the_cached_share() -> None:
    assert prefix_scorer().score(REQUEST, Options.of(cached(0.0, 500.0, 1000.0))).tolist() == [0.0, 0.5, 1.0]


def test_prefix_score_can_weigh_the_absolute_length() -> None:
    scorer = prefix_scorer('{"matchLengthWeight": 0.25, "matchLengthScaleTokens": 1000}')
    # 0.75 · 0.5 + 0.25 · 0.5²
    assert scorer.score(REQUEST, Options.of(cached(500.0))).tolist() == [pytest.approx(0.4375)]
    scorer = prefix_scorer('{"matchLengthWeight": 1.0, "matchLengthScaleTokens": 100}')
    assert scorer.score(REQUEST, Options.of(cached(500.0))).tolist() == [1.0]


@pytest.mark.parametrize(
    "text", ['{"matchLengthWeight": 1.5}', '{"matchLengthWeight": 0.1, "matchLengthScaleTokens": 0}']
)
def test_prefix_parameters_out_of_range(text: str) -> None:
    with pytest.raises(ValueError, match="matchLength"):
        prefix_scorer(text)


def test_power_that_is_left_is_a_share_of_the_limit() -> None:
    def power(watts: float | None, limit: float | None, *, throttled: bool | None = None) -> Option:
        page = replace(metrics(), power_watts=watts, power_limit_watts=limit, throttled=throttled)
        return option(state(f"e{watts}-{limit}-{throttled}", metrics=page))

    given_options = [
        power(175.0, 700.0, throttled=False),
        power(350.0, 700.0),
        power(710.0, 700.0),
        power(100.0, 700.0, throttled=True),
        power(None, 700.0),
        power(100.0, None),
        power(0.0, 0.0),
    ]
    scores = PowerHeadroomScorer().score(REQUEST, Options.of(given_options))
    assert scores.tolist() == [0.75, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0]
