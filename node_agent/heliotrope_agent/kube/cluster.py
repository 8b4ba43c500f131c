"""The API server as the control loop sees it: three threads of their own, and nothing that waits for them."""

import logging
import math
import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from heliotrope.api import documents
from heliotrope.api.v1alpha1.common import API_VERSION, POWER_LEASE
from heliotrope.api.v1alpha1.nodepower import NodePower, NodePowerStatus
from heliotrope.errors import InvalidInputError
from heliotrope_agent.clock import boottime_s
from heliotrope_agent.kube import reports
from heliotrope_agent.kube.backoff import Backoff
from heliotrope_agent.kube.client import REQUEST_S, ApiClient
from heliotrope_agent.kube.credentials import find
from heliotrope_agent.kube.errors import ApiError, ConflictError, NotFoundError, UnauthorizedError, UnavailableError
from heliotrope_agent.kube.events import Events
from heliotrope_agent.kube.follow import Follower, FollowTiming
from heliotrope_agent.kube.lease import LeaseSeen
from heliotrope_agent.kube.metrics import KubeMetrics
from heliotrope_agent.kube.wishes import Wishes

_log = logging.getLogger(__name__)

MANAGER = "heliotrope-agent"
"""Field manager of the status."""
NODE_POWERS = f"/apis/{API_VERSION}/nodepowers"
LEASE_SILENCE_S = 30.0
"""The Lease is renewed every 15 to 25 s. A connection without a renewal is begun anew long before it ends: a half
open one would have every GPU put back."""
LEASE_PAUSE_S = 10.0
"""Longest pause before it is asked for again: an outage that ends before the Lease does must not outlast it here."""
UNREAD_S = 180.0
"""A NodePower that could not be read for so long is believed no more, though the Lease can be read and is renewed."""
IDLE_S = 60.0
"""The writer looks for itself so often: what is no transition is due then."""
SETTLE_S = 10.0
"""Events of the start wait so long for the NodePower to be known."""

Document = dict[str, Any]


class KubeCluster:
    """Implements `heliotrope_agent.kube.wishes.Cluster`.

    Two threads follow the node's NodePower and the operator's Lease, one writes the status and events.
    """

    def __init__(
        self,
        node: str,
        *,
        namespace: str,
        registry: CollectorRegistry,
        kubeconfig: Path | None = None,
        clock: Callable[[], float] = boottime_s,
        unix_clock: Callable[[], float] = time.time,
        changed: Callable[[], None] = lambda: None,
        instance: str = "",
        timing: FollowTiming | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Nothing is asked before `start`.

        Args:
            node: name of this node, and of its NodePower.
            namespace: the operator's, where its Lease is.
            registry: for metrics.
            kubeconfig: credentials; None: the pod's service account, or the user's kubeconfig.
            clock: seconds, of the same clock that the control loop judges the Lease by.
            unix_clock: the time of day, for events.
            changed: called from another thread after each new wish; must return at once.
            instance: name of this pod, for events.
            timing: of watches.
            rng: for jitter.

        Raises:
            InvalidInputError: if there are no credentials at all.
        """
        self._node = node
        self._clock = clock
        self._changed = changed
        self._source = find(kubeconfig)
        self._metrics = KubeMetrics(registry, unix_clock=unix_clock)
        self._events = Events(node, self._metrics, instance=instance, clock=clock, unix_clock=unix_clock)
        jitter = rng or random.Random()
        timing = timing or FollowTiming()
        self._backoff = Backoff(timing.first_pause_s, timing.longest_pause_s, jitter)
        self._client = ApiClient(self._source, self._metrics)
        lease_path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._followers = [
            Follower(
                ApiClient(self._source, self._metrics),
                collection,
                name,
                seen,
                self._metrics,
                clock=clock,
                rng=random.Random(jitter.random()),
                timing=each_timing,
            )
            for collection, name, seen, each_timing in (
                (NODE_POWERS, node, self._see_node_power, timing),
                (
                    lease_path,
                    POWER_LEASE,
                    self._see_lease,
                    replace(
                        timing,
                        silence_s=min(timing.silence_s, LEASE_SILENCE_S),
                        longest_pause_s=min(timing.longest_pause_s, LEASE_PAUSE_S),
                    ),
                ),
            )
        ]
        self._threads = [
            threading.Thread(target=each.run, name=name, daemon=True)
            for each, name in zip(self._followers, ("nodepower", "lease"), strict=True)
        ]
        self._writer = threading.Thread(target=self._write, name="status", daemon=True)
        self._lock = threading.Lock()
        self._awake = threading.Condition(self._lock)
        self._wishes = Wishes()
        self._lease = LeaseSeen()
        self._wanted: NodePowerStatus | None = None
        self._unreadable: str | None = None
        """Why the NodePower cannot be read, as it was told last."""
        self._pace = reports.Pace()
        self._not_before_s = -math.inf
        """A status that was refused is not tried again before."""
        self._refused: str | None = None
        """Why it was, as it was told last."""
        self._written: tuple[str, str | None, NodePowerStatus] | None = None
        """UID, version and status of the last write."""
        self._news = False
        """Whether the writer has something to look at."""
        self._began_s = clock()
        self._ends_s: float | None = None
        """When the writer has to be done, once it is to end."""
        self._metrics.show_lease(self._lease_remaining_s)

    def start(self) -> None:
        """Begin; does not wait for the API server.

        Raises:
            InvalidInputError: if the credentials cannot be used.
        """
        self._source()
        for thread in (*self._threads, self._writer):
            thread.start()

    def stop(self, timeout_s: float = 2.0) -> None:
        """Write what is left to write if the server lets us within this time, and end."""
        ends_s = time.monotonic() + timeout_s
        for follower in self._followers:
            follower.stop()
        with self._awake:
            self._ends_s = ends_s - 0.1
            self._awake.notify()
        for thread in (self._writer, *self._threads):
            if thread.ident is not None:
                thread.join(max(ends_s - time.monotonic(), 0.0))
        self._client.interrupt()

    def wishes(self) -> Wishes:
        """What is known now."""
        wishes = self._wishes
        return replace(wishes, lease_until_s=min(wishes.lease_until_s, self._followers[0].heard_s + UNREAD_S))

    def report(self, status: NodePowerStatus) -> None:
        """Have this status written; a later one takes the place of one that could not be written yet."""
        with self._awake:
            if status != self._wanted:
                self._wanted, self._news = status, True
                self._awake.notify()

    def event(self, reason: str, message: str, *, warning: bool) -> None:
        """Have an event recorded on the NodePower, else on the Node."""
        self._events.put(reason, message, warning=warning)
        with self._awake:
            self._news = True
            self._awake.notify()

    def _see_node_power(self, document: Document | None) -> None:
        node_power, problem = _read(document)
        if problem is not None and problem != self._unreadable:
            message = (
                f"the NodePower cannot be read, so nothing is set: {problem}; are the CRDs of this agent's version?"
            )
            _log.warning("%s", message)
            self._events.put("Invalid", message, warning=True)
        self._unreadable = problem
        with self._awake:
            wishes = replace(self._wishes, node_power=node_power, known=True)
            news = _asked(wishes) != _asked(self._wishes)
            self._wishes, self._news = wishes, True
            self._awake.notify()
        if news:
            self._changed()

    def _see_lease(self, document: Document | None) -> None:
        with self._lock:
            self._lease = self._lease.see(document, self._clock())
            news = self._lease.until_s != self._wishes.lease_until_s
            self._wishes = replace(self._wishes, lease_until_s=self._lease.until_s)
        if news:
            self._changed()

    def _lease_remaining_s(self) -> float | None:
        until_s = self.wishes().lease_until_s
        return None if until_s == -math.inf else until_s - self._clock()

    def _write(self) -> None:
        while True:
            with self._awake:
                self._news = False
                ends_s = self._ends_s
            timeout_s = REQUEST_S if ends_s is None else min(max(ends_s - time.monotonic(), 0.05), REQUEST_S)
            away = False
            try:
                due_s = self._step(timeout_s, last=ends_s is not None)
            except ApiError as error:
                due_s, away = self._backoff.failed(), True
                _log.debug("status and events wait for %.1f s: %s", due_s, error)
            except Exception:  # noqa: BLE001 - the thread outlives whatever is wrong with one status or event
                due_s, away = self._backoff.failed(), True
                _log.exception("a status or an event cannot be written")
            if ends_s is not None and (due_s > 0.0 or time.monotonic() >= ends_s):
                break
            if due_s > 0.0:
                with self._awake:  # no news may hurry us to a server that is away
                    self._awake.wait_for(lambda: self._ends_s is not None or (self._news and not away), due_s)  # noqa: B023
        self._client.close()

    def _step(self, timeout_s: float, *, last: bool) -> float:
        """Write the status and an event where that is due; returns when to look again, in seconds, 0: at once.

        Raises:
            ApiError: if the server is away.
        """
        with self._lock:
            wishes, wanted = self._wishes, self._wanted
        now_s = self._clock()
        due_s = IDLE_S
        if wanted is not None and wishes.node_power is not None:
            due_s = min(self._report(wanted, wishes.node_power, now_s, timeout_s, last=last), IDLE_S)
        if not self._events.waiting():
            return due_s
        if not wishes.known and not last and now_s - self._began_s < SETTLE_S:
            return min(due_s, SETTLE_S)  # what it is about will soon be known
        node_power = wishes.node_power
        if self._events.post(
            self._client, None if node_power is None else node_power.metadata.uid, timeout_s=timeout_s
        ):
            self._backoff.succeeded()
        return 0.0

    def _report(
        self, wanted: NodePowerStatus, node_power: NodePower, now_s: float, timeout_s: float, *, last: bool
    ) -> float:
        """Write a status if it is time; returns in how many seconds to look again."""
        before = self._on_server(node_power)
        after = reports.settled(wanted, before)
        due_s = self._pace.due_s(before, after, now_s)
        if due_s is None:
            return IDLE_S
        if not last:
            due_s = max(due_s, self._not_before_s - now_s)
            if due_s > 0.0:
                return due_s
        self._pace.wrote(now_s)
        uid = node_power.metadata.uid
        try:
            written = self._client.merge(
                f"{NODE_POWERS}/{self._node}/status", reports.patch(after, uid), manager=MANAGER, timeout_s=timeout_s
            )
        except (UnavailableError, UnauthorizedError):
            self._metrics.status_writes.labels("failed").inc()
            raise
        except (ConflictError, NotFoundError):  # it has gone, or is another one: the watch will tell
            self._metrics.status_writes.labels("conflict").inc()
            return self._later(now_s)
        except ApiError as error:
            self._metrics.status_writes.labels("failed").inc()
            if str(error) != self._refused:
                _log.error("the status of the NodePower is refused: %s", error)
            self._refused = str(error)
            return self._later(now_s)
        self._refused = None
        self._backoff.succeeded()
        self._metrics.status_writes.labels("written").inc()
        self._written = uid or "", written["metadata"].get("resourceVersion"), after
        return IDLE_S

    def _later(self, now_s: float) -> float:
        pause_s = self._backoff.failed()
        self._not_before_s = now_s + pause_s
        return pause_s

    def _on_server(self, node_power: NodePower) -> NodePowerStatus | None:
        """The status that the server has, as far as is known: our last write until the watch has come so far."""
        if self._written is not None:
            uid, version, status = self._written
            seen = node_power.metadata.resource_version
            if uid == node_power.metadata.uid and _older(seen, version):
                return status
        return node_power.status


def _asked(wishes: Wishes) -> tuple[object, ...]:
    """What the control loop has to look at; a status is the agent's own."""
    node_power = wishes.node_power
    asked = None if node_power is None else (node_power.metadata.uid, node_power.metadata.generation, node_power.spec)
    return wishes.known, asked


def _older(version: str | None, other: str | None) -> bool:
    """Whether a resourceVersion is from before another of the same object (comparable since Kubernetes 1.35)."""
    if version is None or other is None or not (version.isdecimal() and other.isdecimal()):
        return False
    return int(version) < int(other)


def _read(document: Document | None) -> tuple[NodePower | None, str | None]:
    """The NodePower, without its status if only that cannot be read; or why it cannot be read."""
    if document is None:
        return None, None
    metadata = {name: value for name, value in document["metadata"].items() if name != "managedFields"}
    whole = {"apiVersion": API_VERSION, "kind": "NodePower"} | document | {"metadata": metadata}
    problem = ""
    for readable in (whole, {name: value for name, value in whole.items() if name != "status"}):
        try:
            found = documents.parse(readable, unknown_fields="ignore")
        except InvalidInputError as error:
            problem = str(error)
        else:
            return (found, None) if isinstance(found, NodePower) else (None, f"is a {found.kind}")
    return None, problem
