"""Asks the server before something is called missing: the watch of one kind may lag behind that of another."""

from collections.abc import Callable, Iterable

from heliotrope_operator.cluster import Cluster
from heliotrope_operator.errors import NotFoundError
from heliotrope_operator.kube import Kube
from heliotrope_operator.resources import RESOURCES, Key


class Lookup:
    """Fills gaps in what is known of the cluster."""

    def __init__(self, kube: Kube, cluster: Cluster, *, enqueue: Callable[[Iterable[Key]], None]) -> None:
        """`enqueue` takes the keys that a find touches."""
        self._kube = kube
        self._cluster = cluster
        self._enqueue = enqueue

    async def confirm(self, keys: Iterable[Key]) -> None:
        """Afterwards, those of the keys that are not known did not exist a moment ago.

        Raises:
            ApiError: if the server gives no answer.
        """
        for key in keys:
            if self._cluster.version(key):
                continue
            try:
                found = await self._kube.get(RESOURCES[key.kind].path(key.namespace, key.name))
            except NotFoundError:
                continue
            self._enqueue(self._cluster.observe(key.kind, found))
