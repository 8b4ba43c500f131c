"""Events are bounded and deduplicated, and wait while the server is away."""

from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from heliotrope_agent.kube.errors import ForbiddenError, NotFoundError, UnavailableError
from heliotrope_agent.kube.events import BURST, LONGEST_NOTE, QUEUE, REFILL_S, REPEAT_WITHIN_S, Events
from heliotrope_agent.kube.metrics import KubeMetrics


class Server:
    """Records what it is sent."""

    def __init__(self) -> None:
        self.created: list[dict[str, Any]] = []
        self.merged: list[tuple[str, dict[str, Any]]] = []
        self.failure: Exception | None = None
        self.gone = False
        """Whether the events that were created have expired."""

    def create(self, path: str, document: dict[str, Any], *, timeout_s: float) -> None:
        if self.failure is not None:
            raise self.failure
        self.created.append(document)

    def merge(self, path: str, document: dict[str, Any], *, timeout_s: float) -> None:
        if self.failure is not None:
            raise self.failure
        if self.gone:
            raise NotFoundError(path)
        self.merged.append((path, document))


class World:
    def __init__(self) -> None:
        self.now = 1_000.0
        self.registry = CollectorRegistry()
        self.server = Server()
        metrics = KubeMetrics(self.registry, unix_clock=lambda: self.now)
        self.events = Events("n1", metrics, instance="", clock=lambda: self.now, unix_clock=lambda: self.now)

    def tell(self, message: str = "m", *, uid: str | None = "u") -> None:
        self.events.put("Denied", message, warning=True)
        self.post(uid)

    def post(self, uid: str | None = "u") -> None:
        while self.events.post(self.server, uid):  # type: ignore[arg-type]
            pass

    def count(self, outcome: str) -> float:
        return self.registry.get_sample_value("heliotrope_agent_events_total", {"outcome": outcome}) or 0.0


def test_it_is_about_the_nodepower_else_about_the_node() -> None:
    world = World()
    world.tell("a")
    world.tell("b", uid=None)
    first, second = world.server.created
    assert (first["regarding"]["kind"], first["regarding"]["uid"], first["type"]) == ("NodePower", "u", "Warning")
    assert second["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"}
    assert first["metadata"]["namespace"] == "default"
    assert first["eventTime"] == "1970-01-01T00:16:40.000000Z"


def test_the_same_again_counts_up_for_a_while() -> None:
    world = World()
    for _ in range(3):
        world.tell()
        world.now += REPEAT_WITHIN_S
    assert (len(world.server.created), [body["series"]["count"] for _, body in world.server.merged]) == (1, [2, 3])
    world.now += 1.0
    world.tell()
    assert len(world.server.created) == 2
    world.server.gone = True
    world.tell()
    assert len(world.server.created) == 3


def test_what_waits_is_bounded_and_kept_while_the_server_is_away() -> None:
    world = World()
    world.server.failure = UnavailableError("away")
    for number in range(QUEUE + 6):
        world.events.put("Denied", str(number), warning=True)
    with pytest.raises(UnavailableError):
        world.post()
    assert (world.events.waiting(), world.count("dropped")) == (QUEUE, 6.0)
    world.server.failure = None
    world.post()
    assert world.server.created[0]["note"] == "6"
    assert (len(world.server.created), world.count("limited")) == (BURST, QUEUE - BURST)
    world.now += REFILL_S
    world.tell("later")
    assert len(world.server.created) == BURST + 1


def test_one_that_is_refused_holds_up_no_other() -> None:
    world = World()
    world.server.failure = ForbiddenError("no")
    world.tell()
    assert (world.events.waiting(), world.count("failed")) == (0, 1.0)


def test_a_long_message_is_cut_to_what_the_server_takes() -> None:
    world = World()
    world.tell("x" * 5_000)
    assert len(world.server.created[0]["note"]) == LONGEST_NOTE
