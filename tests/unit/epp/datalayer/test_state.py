"""An endpoint's load, projected to now."""

import math
from dataclasses import replace

import pytest

from heliotrope.engine import profiles
from heliotrope_epp.datalayer.endpoint import Endpoint, EngineMetrics, Traits
from heliotrope_epp.datalayer.inflight import Dispatch
from heliotrope_epp.datalayer.state import EndpointState

ENDPOINT = Endpoint("a", "llm", "10.0.0.1", 8000)


def metrics(**values: float) -> EngineMetrics:
    fields = {"running": 3.0, "waiting": 1.0, "kv_usage": 0.5, "block_size": 16, "num_blocks": 100} | values
    return EngineMetrics(10.0, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "known", [None, EngineMetrics(10.0, running=1.0), EngineMetrics(10.0, waiting=1.0), EngineMetrics(0.0, 1.0, 1.0)]
)
def test_missing_or_stale_metrics_are_unknown_never_zero(known: EngineMetrics | None) -> None:
    state = EndpointState(ENDPOINT, metrics=known)

    load = state.load(now_s=11.0, stale_after_s=2.0)

    assert all(math.isnan(value) for value in (load.running, load.waiting, load.kv_tokens, load.requests))


def test_what_others_sent_stays_and_our_own_is_counted_by_ourselves() -> None:
    state = EndpointState(ENDPOINT)
    own = [Dispatch(9.0, 100.0, 80.0, 9.5), Dispatch(10.5, 200.0, 150.0, 12.0)]
    state.inflight.add(own[0], 0.0)
    state.scraped(metrics())
    state.inflight.add(own[1], 0.0)

    load = state.load(now_s=11.0, stale_after_s=2.0)

    assert load.running == 1.0 + 2.0  # our first one, and of the four seen two of others
    assert (load.waiting, load.waiting_tokens) == (2.0, 150.0 + 150.0)  # another's, as long as ours on average
    assert math.isnan(load.seconds_since_piece)
    assert load.kv_tokens == 0.5 * 16 * 100 + 200.0
    assert load.kv_capacity_tokens == 1600.0
    assert math.isnan(load.power_watts)

    for each in own:
        state.inflight.remove(each)
    assert state.load(11.0, 2.0).requests == 3.0


def test_a_queue_that_was_ours_at_the_scrape_is_ours_no_longer_once_it_was_answered() -> None:
    state = EndpointState(ENDPOINT)
    own = Dispatch(9.0, 100.0, 80.0, 9.5, streams=True)
    state.inflight.add(own, 0.0)
    state.scraped(metrics())
    assert state.load(11.0, 2.0).waiting == 1.0  # the one of the page is ours, due or not

    state.inflight.piece(own, 11.25)

    load = state.load(11.5, 2.0)
    assert (load.waiting, load.waiting_tokens, load.running) == (0.0, 0.0, 4.0)
    assert load.seconds_since_piece == 0.25


def test_kv_tokens_by_the_engine_model_where_the_page_has_no_geometry() -> None:
    model = profiles.load("llama-3.1-8b-h100")
    bare = EngineMetrics(10.0, running=0.0, waiting=0.0, kv_usage=0.25)

    assert EndpointState(ENDPOINT, Traits(engine=model), bare).load(10.0, 2.0).kv_tokens == model.kv_capacity_tokens / 4
    assert math.isnan(EndpointState(ENDPOINT, Traits(), bare).load(10.0, 2.0).kv_tokens)


def test_recent_load_comes_from_pages_and_is_unknown_with_them() -> None:
    state = EndpointState(ENDPOINT)
    for second in range(4):
        page = replace(metrics(), scraped_s=10.0 + second, prompt_tokens_total=1000.0 * second)
        state.scraped(page)

    load = state.load(13.0, 2.0)
    assert load.recent_running == pytest.approx(3.0)
    assert load.recent_prompt_tokens_per_second == pytest.approx(1000.0)
    assert math.isnan(state.load(20.0, 2.0).recent_running)


def test_computed_prompt_tokens_are_taken_where_the_page_tells_them_and_never_mixed_with_all() -> None:
    state = EndpointState(ENDPOINT)
    for second, computed in ((0.0, 0.0), (1.0, 300.0), (2.0, None), (3.0, 900.0)):
        page = replace(
            metrics(),
            scraped_s=10.0 + second,
            prompt_tokens_total=5000.0 * second,
            computed_prompt_tokens_total=computed,
        )
        state.scraped(page)

    assert state.load(13.0, 2.0).recent_prompt_tokens_per_second == pytest.approx(300.0)
