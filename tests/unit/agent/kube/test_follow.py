"""Watches that end, fall silent, expire or break off, and a server that does not answer at all."""

import math
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.agent.kube.server import Misbehaving, line

from heliotrope.api.v1alpha1.nodepower import NodePowerStatus
from heliotrope_agent.kube.client import ApiClient
from heliotrope_agent.kube.cluster import UNREAD_S, KubeCluster
from heliotrope_agent.kube.credentials import Access
from heliotrope_agent.kube.follow import Follower, FollowTiming
from heliotrope_agent.kube.metrics import KubeMetrics

QUICK = FollowTiming(silence_s=0.2, first_pause_s=0.02, longest_pause_s=0.05, lasting_s=0.0)
Document = dict[str, Any]


def eventually(holds: Callable[[], object], patience_s: float = 10.0) -> None:
    ends = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < ends, "it did not come to hold"
        time.sleep(0.005)


def named(version: int, **more: Any) -> Document:
    return {"metadata": {"name": "n1", "resourceVersion": str(version)}} | more


@contextmanager
def following(
    address: str, timing: FollowTiming = QUICK, tell: Callable[[Document | None], None] | None = None
) -> Iterator[tuple[list[Document | None], CollectorRegistry]]:
    registry, seen = CollectorRegistry(), list[Document | None]()
    metrics = KubeMetrics(registry, unix_clock=time.time)
    client = ApiClient(lambda: Access(address, False, lambda: None), metrics)
    follower = Follower(
        client,
        "/apis/x/things",
        "n1",
        seen.append if tell is None else tell,
        metrics,
        clock=time.monotonic,
        rng=random.Random(1),
        timing=timing,
    )
    thread = threading.Thread(target=follower.run)
    thread.start()
    try:
        yield seen, registry
    finally:
        follower.stop()
        thread.join(5.0)
        assert not thread.is_alive()


def test_events_are_told_in_their_order_and_bookmarks_are_not() -> None:
    api = Misbehaving()
    events = [
        line("BOOKMARK", **named(8)),
        line("ADDED", **named(9)) + line("MODIFIED", **named(10)),
        line("DELETED", **named(11))[:20],
        line("DELETED", **named(11))[20:],
    ]

    def watch(api: Misbehaving) -> Iterator[bytes]:
        yield from events if api.watches() == 1 else ()
        yield from api.silence()

    api.watch = watch
    with api.serving() as address, following(address, FollowTiming()) as (seen, _):
        eventually(lambda: len(seen) >= 4)
        assert seen == [None, named(9), named(10), None]
        assert "resourceVersion=7" in api.requests[1][1]
        assert "fieldSelector=metadata.name%3Dn1" in api.requests[1][1]


def test_a_connection_that_falls_silent_is_begun_anew_and_is_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    api = Misbehaving()
    api.watch = Misbehaving.silence
    with api.serving() as address, following(address) as (seen, registry):
        eventually(lambda: len(seen) >= 3)
        assert set(seen) == {None}
        assert registry.get_sample_value("heliotrope_agent_api_up") == 1.0
    assert caplog.records == []


@pytest.mark.parametrize(
    "broken",
    [
        [line("ERROR", code=410, reason="Expired", message="too old resource version")],
        [line("ERROR", code=500, message="etcdserver: no leader")],
        [b'{"type": "MODIFIED", "obj\n'],
        [line("MODIFIED", **named(9)), b"half a li"],
        [],
    ],
)
def test_a_watch_that_breaks_is_begun_anew_from_a_list(broken: list[bytes]) -> None:
    api = Misbehaving()
    api.watch = lambda _: iter(broken)
    with api.serving() as address, following(address) as (seen, _):
        eventually(lambda: api.lists() >= 2)
        api.items = [named(12)]
        eventually(lambda: named(12) in seen)


def test_watches_that_end_at_once_are_paced() -> None:
    api = Misbehaving()
    timing = FollowTiming(first_pause_s=0.1, longest_pause_s=10.0, lasting_s=5.0)
    with api.serving() as address, following(address, timing) as (_, registry):
        time.sleep(0.5)
        assert 1 <= api.lists() <= 5  # 0.05, 0.1, 0.2 s at least between them
        restarts = registry.get_sample_value("heliotrope_agent_watch_restarts_total", {"object": "things"})
        assert restarts is not None
        assert restarts >= 1.0


def test_what_was_told_holds_while_the_server_refuses() -> None:
    api = Misbehaving()
    api.items, api.watch = [named(7)], lambda _: iter(())
    with api.serving() as address, following(address) as (seen, _):
        eventually(lambda: seen)
        api.code = 403
        told, asked = len(seen), len(api.requests)
        eventually(lambda: len(api.requests) >= asked + 3)
        assert None not in seen
        assert len(seen) <= told + 1


def test_a_defect_of_ours_ends_no_thread(caplog: pytest.LogCaptureFixture) -> None:
    api, told = Misbehaving(), list[Document | None]()

    def tell(document: Document | None) -> None:
        told.append(document)
        if len(told) < 3:
            raise KeyError("metadata")

    with api.serving() as address, following(address, tell=tell):
        eventually(lambda: len(told) >= 3)
    assert [record.levelname for record in caplog.records][:2] == ["ERROR", "ERROR"]


def test_a_nodepower_that_cannot_be_read_is_not_believed_as_long_as_the_lease_is_renewed(tmp_path: Path) -> None:
    now = [1_000.0]
    cluster = _cluster("http://127.0.0.1:1", tmp_path, clock=lambda: now[0])
    reading, _ = cluster._followers

    def renewed(time: str) -> float:
        spec = {"holderIdentity": "a", "leaseDurationSeconds": 60, "renewTime": time}
        cluster._see_lease({"metadata": {"uid": "1"}, "spec": spec})
        return cluster.wishes().lease_until_s

    assert renewed("1") == -math.inf
    reading.heard_s = 1_000.0
    assert renewed("2") == 1_060.0
    now[0] = 1_500.0
    assert renewed("3") == 1_000.0 + UNREAD_S
    reading.heard_s = 1_490.0
    assert renewed("4") == 1_560.0


def test_nothing_waits_for_a_server_that_hangs(tmp_path: Path) -> None:
    """The calls of the control loop return at once, and the end comes within its time."""
    api = Misbehaving()
    api.hang.set()
    with api.serving() as address:
        cluster = _cluster(address, tmp_path)
        cluster.start()
        eventually(lambda: api.requests)
        began = time.monotonic()
        cluster.report(NodePowerStatus(managed_gpus=0))
        cluster.event("Test", "waits", warning=False)
        assert not cluster.wishes().known
        assert time.monotonic() - began < 2.0
        cluster.stop(0.5)
        assert time.monotonic() - began < 4.0


def test_nothing_waits_for_a_server_that_takes_no_connection(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)  # and accepts nobody: the second client's SYN gets no answer
        cluster = _cluster(f"http://127.0.0.1:{listener.getsockname()[1]}", tmp_path)
        cluster.start()
        began = time.monotonic()
        cluster.stop(0.5)
        assert time.monotonic() - began < 4.0


def test_a_cluster_that_was_never_started_stops(tmp_path: Path) -> None:
    _cluster("http://127.0.0.1:1", tmp_path).stop()


def _cluster(address: str, folder: Path, clock: Callable[[], float] = time.monotonic) -> KubeCluster:
    config = folder / "config"
    config.write_text(
        "{contexts: [{name: c, context: {cluster: c}}], current-context: c, "
        f"clusters: [{{name: c, cluster: {{server: '{address}'}}}}]}}"
    )
    return KubeCluster("n1", namespace="ns", registry=CollectorRegistry(), kubeconfig=config, clock=clock)
