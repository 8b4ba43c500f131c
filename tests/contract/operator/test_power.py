"""Clocks, watts and demand response on a real API server: NodePowers, their Lease, statuses, and what ends them."""

import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tests.contract.operator.cluster import Api, conditions
from tests.contract.operator.conftest import Start
from tests.contract.operator.process import OperatorProcess, eventually

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

Document = dict[str, Any]
POWER = {"power": True}
LEASE = "heliotrope-power"
SYSTEM = "heliotrope-system"


class PowerApi:
    """The administrator's view of what power is about."""

    def __init__(self, api: Api, unique: Callable[[str], str]) -> None:
        self.api = api
        self.unique = unique
        self.nodes: list[str] = []

    def grant(self, value: str | None = "true") -> None:
        label = f"heliotrope.io/allow-power={value}" if value else "heliotrope.io/allow-power-"
        self.api.cluster.kubectl("label", "namespace", self.api.namespace, label, "--overwrite")

    def node(self) -> str:
        name = self.unique("gpu")
        self.api.cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        self.nodes.append(name)
        return name

    def pod(self, name: str, node: str, app: str) -> None:
        self.api.cluster.apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": self.api.namespace, "labels": {"app": "vllm", "variant": app}},
                "spec": {
                    "nodeName": node,
                    "containers": [
                        {"name": "engine", "image": "engine", "resources": {"limits": {"nvidia.com/gpu": 1}}}
                    ],
                    "tolerations": [{"operator": "Exists"}],
                },
            }
        )
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        self.patch_status("pod", name, {"phase": "Running", "conditions": [ready]})

    def patch_status(self, kind: str, name: str, status: Document) -> None:
        scope = [] if kind == "nodepower" else ["-n", self.api.namespace]
        self.api.cluster.kubectl(
            "patch", kind, name, *scope, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status})
        )

    def agent_says(self, node: str, status: str, reason: str) -> None:
        """As a node's agent reports."""
        times = {"observedGeneration": 1, "lastTransitionTime": "2026-12-01T12:00:00Z"}
        applied = {"type": "Applied", "status": status, "reason": reason, "message": ""} | times
        self.patch_status("nodepower", node, {"conditions": [applied]})

    def variant(self, name: str, role: str = "both", **spec: Any) -> Document:
        points = []
        if role != "decode":
            points += [("prefill", 900, "17500", "0.012", 210), ("prefill", 1980, "38579", "0.018", 695)]
        if role != "prefill":
            points += [("decode", 900, "2600", "0.1231", 320), ("decode", 1980, "2856", "0.1512", 432)]
        energy = [
            {"phase": phase, "smClockMhz": mhz, "tokensPerSecond": rate, "joulesPerToken": joules, "watts": watts}
            for phase, mhz, rate, joules, watts in points
        ]
        return self.api.variant(
            name,
            target=None,
            **{
                "role": role,
                "endpointSelector": {"matchLabels": {"app": "vllm", "variant": name}},
                "energyProfile": energy,
                "clockRange": {"minMhz": 900, "maxMhz": 1980},
                "wattRange": {"minWatts": 200, "maxWatts": 700},
            }
            | spec,
        )

    def pair(self) -> str:
        """A prefill and a decode engine on one node of their own."""
        node = self.node()
        self.api.apply(self.api.pool(), self.variant("prefill", "prefill"), self.variant("decode", "decode"))
        self.pod("prefill-0", node, "prefill")
        self.pod("decode-0", node, "decode")
        return node

    def node_power(self, node: str) -> Document:
        found = self.api.cluster.kubectl(
            "get", "nodepower", node, "-o", "json", "--ignore-not-found", "--show-managed-fields"
        )
        return json.loads(found) if found.strip() else {}

    def intents(self, node: str) -> dict[str, Document]:
        return {each["variant"]: each for each in self.node_power(node).get("spec", {}).get("intents", ())}

    def lease(self) -> Document:
        return self.api.get("Lease", LEASE, SYSTEM).get("spec", {})


@pytest.fixture
def power(api: Api, unique: Callable[[str], str]) -> Iterator[PowerApi]:
    made = PowerApi(api, unique)
    yield made
    # Policies first: the next test's operator would tell of what they lost, in a namespace that is about to end.
    api.cluster.kubectl("delete", "carbonpolicies,workloadvariants", "-n", api.namespace, "--all")
    api.cluster.kubectl("delete", "pods", "-n", api.namespace, "--all", "--force", "--grace-period=0")
    for name in made.nodes:
        api.cluster.kubectl("delete", "nodepower", name, "--ignore-not-found")
        api.cluster.kubectl("delete", "node", name, "--ignore-not-found")


@pytest.fixture
def running(start: Start) -> OperatorProcess:
    return start(parts=POWER).wait_ready()


def managed(api: Api, policy: str = "green") -> tuple[str, str] | None:
    return conditions(api.get("CarbonPolicy", policy)).get("PowerManaged")


def budget(watts: int) -> Document:
    return {"budget": {"watts": watts}, "minimumDwell": "0s"}


def test_a_budget_becomes_clocks_and_limits_by_phase(power: PowerApi, running: OperatorProcess) -> None:
    api, node = power.api, power.pair()
    power.grant()
    api.apply(api.policy("green", power=budget(800)))

    eventually(lambda: set(power.intents(node)) == {"prefill", "decode"})
    found = power.node_power(node)
    intents = power.intents(node)
    assert found["spec"]["enforcement"] == "Enforce"
    assert found["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "heliotrope-operator"
    (owner,) = found["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Node", node)
    assert {each["manager"] for each in found["metadata"]["managedFields"]} == {"heliotrope-operator"}
    assert sum(each["watts"] for each in intents.values()) <= 802  # a watt of rounding each
    assert intents["decode"]["smClockMhz"] < 1980
    uid = api.cluster.get("pod", "decode-0", "-n", api.namespace)["metadata"]["uid"]
    assert intents["decode"]["pods"] == [{"name": "decode-0", "uid": uid}]
    assert managed(api) == ("False", "NoAgent")
    for status, reason, said in (
        ("False", "Denied", ("False", "NotApplied")),
        ("True", "Applied", ("True", "PowerManaged")),
    ):
        power.agent_says(node, status, reason)
        eventually(lambda said=said: managed(api) == said)
    eventually(lambda: power.lease().get("holderIdentity") == "operator")
    chosen = eventually(lambda: api.get("WorkloadVariant", "prefill")["status"].get("chosenPower"))[0]
    assert (chosen["smClockMhz"], chosen["reason"]) == (intents["prefill"]["smClockMhz"], "WithinBudget")
    assert running.metric("heliotrope_power_budget_watts", {"policy": "green"}) == 800
    assert 700 < running.metric("heliotrope_power_projected_watts", {"policy": "green"}) <= 800

    power.patch_status("nodepower", node, {"managedGpus": 2})
    eventually(lambda: managed(api) == ("True", "PowerManaged"))


def test_without_the_namespaces_grant_and_under_advise_nothing_may_be_set(
    power: PowerApi, running: OperatorProcess
) -> None:
    api, node = power.api, power.pair()
    api.apply(api.policy("green", power=budget(800)))

    eventually(lambda: managed(api) == ("False", "NotGranted"))
    eventually(lambda: power.node_power(node)["spec"]["enforcement"] == "Advise")

    power.grant()
    eventually(lambda: power.node_power(node)["spec"]["enforcement"] == "Enforce")

    api.apply(api.policy("green", power=budget(800), enforcement="Advise"))
    eventually(lambda: power.node_power(node)["spec"]["enforcement"] == "Advise")
    assert {each["enforcement"] for each in power.intents(node).values()} == {"Advise"}
    eventually(lambda: managed(api) == ("False", "AdviseOnly"))


def test_what_is_not_governed_any_more_is_taken_back(power: PowerApi, running: OperatorProcess) -> None:
    api, node = power.api, power.pair()
    power.grant()
    api.apply(api.policy("green", power=budget(800)))
    eventually(lambda: power.intents(node))
    eventually(lambda: api.get("WorkloadVariant", "decode").get("status", {}).get("chosenPower"))

    api.delete("CarbonPolicy", "green")

    eventually(lambda: not power.node_power(node))
    eventually(lambda: not api.get("WorkloadVariant", "decode")["status"].get("chosenPower"))


def test_a_node_without_our_pods_has_no_nodepower_and_a_foreign_one_stays(
    power: PowerApi, running: OperatorProcess
) -> None:
    api, node, other = power.api, power.pair(), power.node()
    power.grant()
    byhand = {
        "apiVersion": "heliotrope.io/v1alpha1",
        "kind": "NodePower",
        "metadata": {"name": node},
        "spec": {"enforcement": "Advise", "intents": []},
    }
    api.cluster.apply(byhand)
    api.apply(api.policy("green", power=budget(800)))

    eventually(lambda: managed(api) == ("False", "NodePowerConflict"))
    assert power.node_power(node)["spec"]["enforcement"] == "Advise"
    assert not power.node_power(other)
    api.delete("CarbonPolicy", "green")
    api.apply(api.policy("later", power=budget(800)))
    assert power.node_power(node)

    api.cluster.kubectl("delete", "nodepower", node)
    eventually(lambda: set(power.intents(node)) == {"prefill", "decode"})


def test_the_older_of_two_policies_decides(power: PowerApi, running: OperatorProcess) -> None:
    api, node = power.api, power.pair()
    power.grant()
    api.apply(api.policy("older", power=budget(1100)))
    api.wait_until_older("CarbonPolicy", "older")
    api.apply(api.policy("younger", power=budget(600)))

    eventually(lambda: managed(api, "younger") == ("False", "NotAccepted"))
    eventually(lambda: power.intents(node))
    assert sum(each["watts"] for each in power.intents(node).values()) > 700

    api.delete("CarbonPolicy", "older")
    eventually(lambda: sum(each["watts"] for each in power.intents(node).values()) <= 602)


def test_a_budget_that_cannot_be_kept_says_so(power: PowerApi, running: OperatorProcess) -> None:
    api, node = power.api, power.pair()
    power.grant()
    api.apply(api.policy("green", power=budget(100)))

    eventually(lambda: managed(api) == ("False", "BudgetInfeasible"))
    eventually(lambda: {each["smClockMhz"] for each in power.intents(node).values()} == {900})
    eventually(lambda: ("Warning", "BudgetInfeasible") in api.told("green"))


def test_a_killed_operator_renews_nothing_and_its_successor_changes_nothing(power: PowerApi, start: Start) -> None:
    api, node = power.api, power.pair()
    power.grant()
    api.apply(api.policy("green", power=budget(800)))
    first = start("first", parts=POWER).wait_ready()
    eventually(lambda: power.intents(node))
    eventually(lambda: power.lease().get("holderIdentity") == "first")

    first.kill()
    at_death, version = power.lease()["renewTime"], power.node_power(node)["metadata"]["resourceVersion"]
    assert power.lease()["leaseDurationSeconds"] == 60

    second = start("second", parts=POWER)
    assert power.lease()["renewTime"] == at_death
    second.wait_ready()
    eventually(lambda: power.lease()["holderIdentity"] == "second")
    assert power.lease()["renewTime"] > at_death
    assert power.node_power(node)["metadata"]["resourceVersion"] == version


def test_a_stopped_operator_leaves_the_lease_to_run_out(power: PowerApi, running: OperatorProcess) -> None:
    api, node = power.api, power.pair()
    power.grant()
    api.apply(api.policy("green", power=budget(800)))
    eventually(lambda: power.intents(node))
    eventually(lambda: power.lease().get("holderIdentity") == "operator")

    assert running.terminate()[0] == 0

    assert power.node_power(node)
    assert datetime.fromisoformat(power.lease()["renewTime"]) <= datetime.now(UTC)
    renewed = power.lease()["renewTime"]
    api.wait_until_older("CarbonPolicy", "green")
    assert power.lease()["renewTime"] == renewed


class Vtn:
    """A server of events that asks for a token."""

    def __init__(self) -> None:
        self.events: list[Document] = []
        self.tokens: list[str | None] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.tokens.append(self.headers.get("Authorization"))
                body = json.dumps(outer.events).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/events"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def vtn() -> Iterator[Vtn]:
    made = Vtn()
    yield made
    made.close()


def openadr(name: str, begun: timedelta, hours: int, kilowatts: float) -> Document:
    start = (datetime.now(UTC) - begun).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "eventName": name,
        "intervalPeriod": {"start": start, "duration": f"PT{hours}H"},
        "intervals": [{"id": 0, "payloads": [{"type": "IMPORT_CAPACITY_LIMIT", "values": [kilowatts]}]}],
    }


def secret(api: Api, name: str, annotations: dict[str, str]) -> None:
    api.cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": SYSTEM, "annotations": annotations},
            "stringData": {"token": "s3cret"},
        }
    )


def demand(vtn: Vtn, name: str) -> Document:
    http = {"url": vtn.url, "pollInterval": "1s", "tokenSecretRef": {"name": name, "key": "token"}}
    return {"http": http, "rampIn": "0s", "rampOut": "0s", "weights": {"energy": "1"}}


def test_an_event_of_a_server_lowers_power_survives_a_kill_and_ends(
    power: PowerApi, start: Start, vtn: Vtn, unique: Callable[[str], str]
) -> None:
    api, node = power.api, power.pair()
    power.grant()
    name = unique("vtn")
    secret(api, name, {"heliotrope.io/demand-origin": vtn.url.removesuffix("/events")})
    api.apply(api.policy("green", power={"minimumDwell": "0s"}, demandResponse=demand(vtn, name)))
    first = start("first", parts=POWER).wait_ready()

    def answered() -> tuple[str, str] | None:
        return conditions(api.get("CarbonPolicy", "green")).get("DemandAnswered")

    eventually(lambda: answered() == ("False", "NoEvent"))
    assert set(vtn.tokens) == {"Bearer s3cret"}
    vtn.events = [openadr("evening", timedelta(minutes=5), 1, 0.8)]

    eventually(lambda: answered() == ("True", "EventAnswered"))
    event = api.get("CarbonPolicy", "green")["status"]["demandResponse"]
    assert (event["event"], event["watts"], event["baselineWatts"]) == (
        "evening",
        800,
        1126,
    )  # 695 + 432 by energy times throughput
    eventually(lambda: power.intents(node))
    assert sum(each["watts"] for each in power.intents(node).values()) <= 802

    first.kill()
    asked = len(vtn.tokens)
    second = start("second", parts=POWER).wait_ready()
    eventually(lambda: len(vtn.tokens) > asked)
    again = api.get("CarbonPolicy", "green")["status"]["demandResponse"]
    assert again == event

    vtn.events = []
    eventually(lambda: answered() == ("False", "NoEvent"))
    eventually(lambda: not power.node_power(node))
    assert "demandResponse" not in api.get("CarbonPolicy", "green")["status"]
    told = [reason for _, reason in api.told("green") if reason in ("EventAnswered", "PowerReturns", "NoEvent")]
    assert told == ["EventAnswered", "NoEvent"]
    assert second.metric("heliotrope_demand_polls_total", {"outcome": "success"}) > 0


def test_a_secret_goes_only_where_it_says_it_may(
    power: PowerApi, running: OperatorProcess, vtn: Vtn, unique: Callable[[str], str]
) -> None:
    api = power.api
    api.apply(api.pool())
    name = unique("vtn")
    secret(api, name, {"heliotrope.io/demand-origin": "https://elsewhere.example"})
    api.apply(api.policy("green", power={}, demandResponse=demand(vtn, name)))

    eventually(lambda: conditions(api.get("CarbonPolicy", "green")).get("DemandAnswered") == ("Unknown", "NotGranted"))
    power.grant()
    eventually(
        lambda: conditions(api.get("CarbonPolicy", "green")).get("DemandAnswered") == ("Unknown", "SourceUnavailable")
    )

    assert vtn.tokens == []
    (condition,) = [
        each for each in api.get("CarbonPolicy", "green")["status"]["conditions"] if each["type"] == "DemandAnswered"
    ]
    assert f"may not be sent to {vtn.url.removesuffix('/events')}" in condition["message"]
    assert "s3cret" not in running.text()
