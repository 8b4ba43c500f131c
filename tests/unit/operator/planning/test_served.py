"""What engines serve stands for what is asked only where all of them are measured."""

import pytest

from heliotrope.api.v1alpha1.common import Role
from heliotrope_operator.planning.observed import EngineRates, ModelRates
from heliotrope_operator.planning.scraped import Scraped
from heliotrope_operator.planning.served import QUEUED, Replica, served


def replica(pod: str, model: str = "m", role: Role = Role.BOTH, *, serves: bool = True) -> Replica:
    return Replica(pod, model, role, serves)


def engine(
    rate: float | None = 1.0, *, queued: float | None = 0.0, fresh_s: float = 40.0, asleep: bool = False
) -> Scraped:
    tokens = None if rate is None else rate * 100.0
    rates = EngineRates(
        asleep=asleep,
        requests_per_second=rate,
        prompt_tokens_per_second=tokens,
        output_tokens_per_second=tokens,
        waiting=queued,
    )
    return Scraped(rates, fresh_s, queued)


def test_models_are_the_sums_of_their_engines_and_count_as_long_as_the_oldest_of_them() -> None:
    found = served(
        ["m", "n"],
        [replica("a"), replica("b"), replica("c", "n")],
        {"a": engine(1.0), "b": engine(2.0, fresh_s=10.0), "c": engine(5.0)},
    )
    assert found.models == {"m": ModelRates(3.0, 300.0, 300.0), "n": ModelRates(5.0, 500.0, 500.0)}
    assert (found.gaps, found.queues, found.fresh_for_s) == ({}, {}, 10.0)


def test_a_pod_that_two_variants_select_counts_once() -> None:
    found = served(["m"], [replica("a"), replica("a")], {"a": engine(2.0)})
    assert found.models["m"].requests_per_second == 2.0


@pytest.mark.parametrize(
    ("engines", "gap"),
    [
        ({"a": engine()}, "b serves and is not among the scraped targets"),
        ({"a": engine(), "b": engine(None)}, "b serves, and its requests, tokens or queue are stale"),
        ({"a": engine(), "b": engine(queued=None)}, "b serves, and its requests, tokens or queue are stale"),
    ],
)
def test_one_awake_replica_that_is_not_measured_makes_the_model_unknown(engines: dict[str, Scraped], gap: str) -> None:
    found = served(["m"], [replica("a"), replica("b")], engines)
    assert found.models == {}
    assert found.gaps["m"].startswith(gap)
    assert found.fresh_for_s == 40.0


def test_one_that_sleeps_starts_or_ends_need_not_be_measured() -> None:
    found = served(
        ["m"],
        [replica("a"), replica("b"), replica("c", serves=False), replica("d", serves=False)],
        {"a": engine(1.0), "b": engine(None, queued=None, asleep=True), "d": engine(0.5)},
    )
    assert found.gaps == {}
    assert found.models["m"].requests_per_second == 1.5  # what one that ends was asked was asked


@pytest.mark.parametrize("replicas", [[], [replica("a", serves=False)], [replica("a")]])
def test_a_model_without_an_awake_engine_is_unknown_and_not_idle(replicas: list[Replica]) -> None:
    found = served(["m"], replicas, {"a": engine(0.0, asleep=True)})
    assert found.models == {}
    assert found.gaps == {"m": "no engine of it is awake"}
    assert found.fresh_for_s == 0.0


@pytest.mark.parametrize(("queued", "keeps"), [(0.0, False), (QUEUED - 0.1, False), (QUEUED, True), (30.0, True)])
def test_a_queue_at_any_engine_is_told(queued: float, keeps: bool) -> None:
    found = served(["m"], [replica("a"), replica("b")], {"a": engine(), "b": engine(queued=queued)})
    assert ("m" in found.queues) is keeps
    assert "m" in found.models


def test_a_request_of_two_phases_counts_once() -> None:
    replicas = [replica("p", role=Role.PREFILL), replica("d", role=Role.DECODE), replica("b")]
    engines = {"p": engine(4.0), "d": engine(5.0), "b": engine(1.0)}
    assert served(["m"], replicas, engines).models["m"] == ModelRates(6.0, 600.0, 600.0)
    # More were begun than ended: all of them are asked for, of the lengths of those that ended.
    engines["p"] = engine(11.0)
    assert served(["m"], replicas, engines).models["m"] == ModelRates(12.0, 1_200.0, 1_200.0)
