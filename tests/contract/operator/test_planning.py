"""Replicas that follow demand on a real API server: a whole operator, a picker that tells, pods that come and go."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from tests.contract.operator.cluster import NAMESPACE, Api, conditions
from tests.contract.operator.conftest import Start
from tests.contract.operator.demanded import MODEL, PROFILE, Engines, Picker
from tests.contract.operator.process import OperatorProcess, eventually
from tests.contract.operator.scaled import message, original, said, untouched
from tests.support.controlplane import ControlPlane
from tests.support.demand_memory import Engine, Memory
from tests.support.upstream import upstream

pytestmark = [pytest.mark.controlplane, pytest.mark.slow, pytest.mark.timeout(240)]

START_REPLICAS = 2
MUCH, LITTLE = 60.0, 0.5
"""Requests per second: more than two engines carry, and what one carries easily."""
DWELL_S = 4
DEMAND = "DemandKnown"


@dataclass(slots=True)
class Pool:
    """A granted namespace with a pool, its picker, its engines and a variant."""

    api: Api
    picker: Picker
    engines: Engines

    def policy(self, actuation: str = "Scale", dwell_s: int = DWELL_S, **spec: Any) -> None:
        """The policy, which decides each second."""
        down = {"dwell": f"{dwell_s}s", "maxReplicasPerStep": 8}
        scaling = {"actuation": actuation, "interval": "1s", "scaleDown": down} | spec
        self.api.apply(self.api.policy("green", autoscaling=scaling))

    def known(self) -> tuple[str, str] | None:
        """What the policy says of its demand."""
        return conditions(self.api.get("CarbonPolicy", "green")).get(DEMAND)

    def condition(self) -> str:
        """The message of that."""
        found = self.api.get("CarbonPolicy", "green")["status"]["conditions"]
        return next(str(each["message"]) for each in found if each["type"] == DEMAND)

    def becomes_known(self) -> None:
        """Wait until the operator knows what is asked."""
        eventually(lambda: self.known() == ("True", DEMAND), "demand is known")

    @property
    def replicas(self) -> int:
        """What the Deployment was asked for when its controllers looked last."""
        return self.engines.moves[-1][1]

    def holds(self, seconds: float) -> None:
        """The number stays for a while."""
        before = list(self.engines.moves)
        time.sleep(seconds)
        assert self.engines.moves == before

    def raised(self) -> int:
        """Wait until much is asked and carried; returns the replicas that do."""
        self.picker.ask(MUCH)
        eventually(lambda: self.replicas > START_REPLICAS, "raised")
        eventually(lambda: time.time() - self.engines.moves[-1][0] > 3.0, "settled")
        return self.replicas


@contextmanager
def pool_of(api: Api, replicas: int = START_REPLICAS, **variant: Any) -> Iterator[Pool]:
    """The namespace, without a policy and an operator."""
    api.cluster.kubectl("label", "namespace", api.namespace, "heliotrope.io/allow-scaling=true")
    manifest = api.workload()
    manifest["spec"]["replicas"] = replicas
    api.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    spec = {"maxReplicas": 8, "engine": {"profile": PROFILE}} | variant
    api.apply(api.pool(), api.variant("v", **spec))
    with ExitStack() as stack:
        stack.callback(_clear, api)
        engines = stack.enter_context(Engines(api))
        picker = Picker(api.namespace, lambda: engines.serving)
        stack.callback(picker.stop)
        api.cluster.apply(picker.slice(api))
        yield Pool(api, picker, engines)


def _clear(api: Api) -> None:
    """Nothing empties a deleted namespace here: the next operator would act in it, and be refused new events."""
    left = (("CarbonPolicy", "green"), ("WorkloadVariant", "v"), ("InferencePool", "pool"), ("Deployment", "engine"))
    for kind, name in left:
        api.delete(kind, name)


@pytest.fixture
def pool(api: Api) -> Iterator[Pool]:
    """See `pool_of`."""
    with pool_of(api) as pool:
        yield pool


@pytest.fixture
def plan(start: Start) -> Callable[..., OperatorProcess]:
    """Starts operators that plan and ask pickers twice a second."""

    def started(name: str = "operator", **settings: Any) -> OperatorProcess:
        given = {"parts": {"scaling": True}, "demand_poll_s": 0.5, "status_refresh_s": 1.0} | settings
        return start(name, **given).wait_ready()

    return started


Plan = Callable[..., OperatorProcess]


def test_replicas_follow_demand_and_the_variant_says_why(pool: Pool, plan: Plan) -> None:
    pool.policy()
    pool.picker.ask(LITTLE)
    plan()
    pool.becomes_known()
    asked = pool.picker.asked
    many = pool.raised()
    assert pool.picker.asked - asked < 40, "a few rounds of questions, those in which it settles included"
    seen_s = next(at for at, number in pool.engines.moves if number > START_REPLICAS)
    assert original(pool.api)["value"] == START_REPLICAS  # type: ignore[index]

    eventually(lambda: said(pool.api) == ("True", "Scaled"))
    eventually(lambda: f"is {many}: " in message(pool.api))
    described = " ".join(pool.api.cluster.kubectl("describe", "wv", "v", "-n", pool.api.namespace).split())
    assert f"spec.replicas of Deployment engine is {many}: " in described
    assert "requests/s, a replica" in described
    assert "within the SLO" in described

    pool.picker.ask(LITTLE)
    eventually(lambda: pool.replicas == 1, "lowered to what carries it")
    fewer_s = next(at for at, number in pool.engines.moves if at > seen_s and number < many)
    before_s = max(at for at, _ in pool.engines.moves if at < fewer_s)
    assert fewer_s - before_s > DWELL_S - 1.0

    pool.api.delete("CarbonPolicy", "green")
    eventually(lambda: pool.replicas == START_REPLICAS, "given back")
    eventually(lambda: untouched(pool.api))


def test_a_picker_that_is_away_holds_the_number_and_never_makes_it_the_minimum(pool: Pool, plan: Plan) -> None:
    pool.policy()
    plan()
    many = pool.raised()
    pool.picker.stop()
    before = list(pool.engines.moves)
    eventually(lambda: pool.known() == ("False", "DemandUnknown"), "the policy says so", seconds=80.0)
    assert "Connect call failed" in pool.condition()
    eventually(lambda: "the demand is unknown" in message(pool.api))
    pool.holds(DWELL_S + 3.0)
    assert pool.engines.moves == before
    assert pool.replicas == many

    pool.picker.start()
    pool.becomes_known()
    pool.picker.ask(LITTLE)
    eventually(lambda: pool.replicas == 1, "it plans again")


def test_a_page_that_is_garbage_is_no_demand_of_zero(pool: Pool, plan: Plan) -> None:
    pool.policy(dwell_s=0)
    pool.picker.garbage = True
    operator = plan()
    eventually(lambda: pool.known() == ("False", "DemandUnknown"))
    assert "the picker's page cannot be read" in pool.condition()
    pool.holds(3.0)
    assert untouched(pool.api)
    assert operator.metric("heliotrope_picker_polls_total", {"outcome": "bad"}) > 0
    pool.picker.garbage = False
    pool.becomes_known()


def test_a_picker_that_starts_again_counts_from_zero(pool: Pool, plan: Plan) -> None:
    pool.policy(dwell_s=2)
    plan()
    pool.raised()
    pool.picker.begin_anew()
    pool.holds(8.0)
    assert pool.known() == ("True", DEMAND)


def test_held_requests_wake_a_pool_at_zero(api: Api, plan: Plan) -> None:
    with pool_of(api, 0, minReplicas=0) as pool:
        pool.policy(scaleToZero=True)
        plan()
        pool.becomes_known()
        pool.holds(3.0)
        assert pool.replicas == 0
        asked = pool.picker.asked
        pool.picker.held = 1
        eventually(lambda: pool.replicas == 1, "woken")
        assert pool.picker.asked - asked <= 8, "one round tells; the others are until pods follow"
        eventually(lambda: "requests wait and no engine serves" in message(pool.api))


def test_a_killed_operator_remembers_dwell_and_does_not_jump(pool: Pool, plan: Plan) -> None:
    dwell_s = 15
    pool.policy(dwell_s=dwell_s)
    first = plan("first")
    many = pool.raised()
    memory = eventually(lambda: pool.api.get("WorkloadVariant", "v")["status"].get("scaling"))
    assert "lastChange" in memory
    changed_s = pool.engines.moves[-1][0]
    pool.picker.ask(LITTLE)
    first.kill()
    plan("second")
    pool.becomes_known()
    assert pool.api.get("WorkloadVariant", "v")["status"]["scaling"]["lastChange"] == memory["lastChange"]
    eventually(lambda: pool.replicas != many, "it goes on", seconds=90.0)
    at_s, number = next(move for move in pool.engines.moves if move[0] > changed_s)
    assert number < many
    assert at_s - changed_s > dwell_s - 2.0


def test_it_plans_on_after_a_restart_of_the_api_server(
    restartable: ControlPlane, pool: Pool, plan: Plan, refusals_allowed: None
) -> None:
    pool.policy()
    plan()
    many = pool.raised()
    restartable.restart_apiserver()
    pool.holds(5.0)
    assert pool.replicas == many
    pool.picker.ask(LITTLE)
    eventually(lambda: pool.replicas == 1, "lowered")


def test_it_gets_through_while_somebody_changes_the_variant_all_the_time(pool: Pool, plan: Plan) -> None:
    """Statuses hold for one version of an object, so that some of its writes may be answered with 409."""
    pool.policy()
    operator = plan()
    ended = threading.Event()

    def storm() -> None:
        number = 0
        while not ended.wait(0.002):
            number += 1
            patch = {"metadata": {"annotations": {"storm": str(number)}}}
            pool.api.merge("WorkloadVariant", "v", patch)

    thread = threading.Thread(target=storm, daemon=True)
    thread.start()
    try:
        many = pool.raised()
        eventually(lambda: pool.api.get("WorkloadVariant", "v")["status"].get("desiredReplicas") == many)
    finally:
        ended.set()
        thread.join()
    assert operator.health()[0] == 200
    pool.picker.ask(LITTLE)
    eventually(lambda: pool.replicas == 1, "lowered")


def test_metrics_only_publishes_and_changes_nothing(pool: Pool, plan: Plan) -> None:
    pool.policy("MetricsOnly")
    pool.picker.ask(MUCH)
    operator = plan()
    labels = {"variant_name": "v", "namespace": pool.api.namespace, "accelerator_type": "H100"}
    eventually(lambda: operator.metric("heliotrope_desired_replicas", labels) > START_REPLICAS)
    eventually(lambda: said(pool.api) == ("False", "MetricsOnly"))
    assert operator.metric("wva_desired_replicas", labels) == operator.metric("heliotrope_desired_replicas", labels)
    pool.holds(3.0)
    assert untouched(pool.api)


def test_replicas_go_also_where_only_engines_are_scraped(pool: Pool, plan: Plan) -> None:
    """As with llm-d's endpoint picker: its Service knows nothing of `/v1/demand`."""
    memory, scraped = Memory(MODEL), Engine(rate=LITTLE / START_REPLICAS)
    memory.up = []
    memory.scraped = lambda: dict.fromkeys(pool.engines.serving, scraped)
    pool.picker.garbage = True
    pool.policy()
    with upstream(memory) as server:
        plan(prometheus={"url": server.url})
        eventually(lambda: pool.known() == ("True", "DemandFromPrometheus"), "the policy says who tells", seconds=80.0)
        eventually(lambda: pool.replicas == 1, "lowered", seconds=80.0)
        assert "by the requests that engines serve; the last replica of a model stays" in pool.condition()
        assert "requests/s by Prometheus" in message(pool.api)
        scraped.rate = MUCH
        eventually(lambda: pool.replicas > START_REPLICAS, "raised", seconds=80.0)
        scraped.rate, scraped.waiting = LITTLE / 8.0, 4.0
        eventually(lambda: "requests wait at" in pool.condition(), "the queue is told", seconds=80.0)
        pool.holds(DWELL_S + 4.0)
        memory.status = 503
        scraped.waiting = 0.0
        eventually(lambda: pool.known() == ("False", "DemandUnknown"), "the outage is told", seconds=120.0)
        pool.holds(DWELL_S + 4.0)


def test_prometheus_tells_while_no_picker_can_be_asked(pool: Pool, plan: Plan, unique: Callable[[str], str]) -> None:
    """With a token from a Secret, and all parts, none of whose metrics has another's name."""
    memory, secret = Memory(MODEL), unique("prometheus")
    memory.rate = MUCH
    pool.picker.stop()
    pool.policy()
    pool.api.cluster.apply(pool.api.secret(secret, NAMESPACE, token="hunter2"))
    with upstream(memory) as server:
        parts = dict.fromkeys(("scaling", "activation", "power", "deferral"), True)
        operator = plan(parts=parts, prometheus={"url": server.url, "secret": secret})
        eventually(lambda: pool.known() == ("True", "DemandFromPrometheus"), "the policy says who tells", seconds=80.0)
        assert "Connect call failed" in pool.condition()
        eventually(lambda: pool.replicas > START_REPLICAS, "raised")
        assert {asked.headers.get("authorization") for asked in server.asked} == {"Bearer hunter2"}
        assert operator.metric("heliotrope_demand_queries_total", {"about": "past", "outcome": "success"}) == 1
        memory.rate = LITTLE
        pool.holds(DWELL_S + 4.0)
    families = operator.families()
    assert len(families) == len(set(families))
    assert "hunter2" not in operator.text()
