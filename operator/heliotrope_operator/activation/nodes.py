"""Takes whole nodes out of use, and back: cordon, then evict what is left, as `kubectl drain` does.

The node's own `unschedulable` is kept as an annotation before it is changed, and put back from there. Evictions respect
PodDisruptionBudgets. Removing the machine is the cluster autoscaler's business; only then its host's watts are saved.
"""

import logging
from collections.abc import Iterable

from heliotrope_operator.activation.gather import stays_with_node
from heliotrope_operator.activation.metrics import ActivationMetrics
from heliotrope_operator.errors import ApiError, NotFoundError, UnavailableError
from heliotrope_operator.kinds.nodes import Node, node_key
from heliotrope_operator.parts import Context
from heliotrope_operator.resources import RESOURCES, Key, Kind

_log = logging.getLogger(__name__)

ORIGINAL = "heliotrope.io/original-unschedulable"
EVICTIONS = 4
"""Pods of all nodes together that one pass evicts."""


class Nodes:
    """Makes nodes so."""

    def __init__(self, context: Context, metrics: ActivationMetrics) -> None:
        self._context = context
        self._metrics = metrics

    def taken(self) -> list[str]:
        """Nodes that carry the annotation."""
        return [key.name for key, node in self._context.cluster.nodes.items() if original(node) is not None]

    async def make_so(self, off: Iterable[str], may_go: frozenset[Key]) -> None:
        """Have these nodes off and all others as they were.

        Args:
            off: nodes on which nothing is needed.
            may_go: pods whose going leaves no variant with fewer than are wanted.

        Raises:
            NotLeaderError: if this replica may not write.
        """
        wanted, evictions = set(off), EVICTIONS
        for name in sorted(wanted | set(self.taken())):
            node = self._context.cluster.nodes.get(node_key(name))
            if node is None:
                continue
            try:
                if name not in wanted:
                    await self._restore(name, node)
                elif original(node) is None:
                    await self._cordon(name, node)
                else:
                    evictions -= await self._drain(name, may_go, evictions)
            except ApiError as error:
                self._metrics.failures.inc()
                _log.warning("node %s: %s", name, error)

    async def restore_all(self) -> None:
        """Put every node back."""
        await self.make_so((), frozenset())

    async def _cordon(self, name: str, node: Node) -> None:
        was = "true" if node.unschedulable else "false"
        patch = {"metadata": {"annotations": {ORIGINAL: was}}, "spec": {"unschedulable": True}}
        await self._patch(name, patch)
        self._metrics.moves.labels("cordon").inc()
        _log.info("node %s takes no more pods: none of its engines is needed", name)

    async def _restore(self, name: str, node: Node) -> None:
        keep = original(node) == "true"
        patch = {"metadata": {"annotations": {ORIGINAL: None}}, "spec": {"unschedulable": True if keep else None}}
        await self._patch(name, patch)
        self._metrics.moves.labels("uncordon").inc()
        _log.info("node %s is as it was", name)

    async def _drain(self, name: str, may_go: frozenset[Key], most: int) -> int:
        cluster, evicted = self._context.cluster, 0
        for key in sorted(cluster.pods.by("node", name)):
            pod = cluster.pods.get(key)
            if evicted >= most:
                break
            if pod is None or pod.terminating or stays_with_node(pod) or key not in may_go:
                continue
            document = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": key.name, "namespace": key.namespace},
                "deleteOptions": {"preconditions": {"uid": pod.uid}},
            }
            path = RESOURCES[Kind.POD].path(key.namespace, key.name, "eviction")
            try:
                await self._context.writes.create(path, document)
            except NotFoundError:
                continue
            except UnavailableError as error:
                _log.info("%s stays for now: %s", key, error)  # a PodDisruptionBudget
                continue
            evicted += 1
            self._metrics.moves.labels("evict").inc()
        return evicted

    async def _patch(self, name: str, patch: dict[str, object]) -> None:
        try:
            changed = await self._context.writes.set(RESOURCES[Kind.NODE].path(name=name), patch)
        except NotFoundError:
            return
        self._context.cluster.observe(Kind.NODE, changed)


def original(node: Node) -> str | None:
    """What `unschedulable` was before Heliotrope; None: it was not touched."""
    return dict(node.annotations).get(ORIGINAL)
