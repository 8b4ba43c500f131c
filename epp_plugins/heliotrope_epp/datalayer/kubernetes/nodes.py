"""The region label of the nodes that pods run on, where reading nodes is permitted."""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping

from heliotrope.api.v1alpha1.common import TOPOLOGY_REGION_LABEL
from heliotrope_epp.datalayer.kubernetes.connection import Collection, Connection
from heliotrope_epp.datalayer.kubernetes.errors import ApiError, NotServedError, RefusedError

_log = logging.getLogger(__name__)

_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
_LOOKUP_S = 2.0
_RETRY_S = 600.0


class NodeRegions:
    """Looks each node up once and keeps its region as long as a pod is there.

    Node objects change all the time and their region never, so a watch would cost much and tell nothing.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._regions: dict[str, str | None] = {}
        self._refused_at_s: float | None = None

    async def of(self, nodes: Iterable[str]) -> Mapping[str, str | None]:
        """Region by node; None where it has none. Takes two seconds at most.

        A node that could not be read is absent and tried again at the next call.
        """
        wanted = frozenset(nodes)
        self._regions = {node: region for node, region in self._regions.items() if node in wanted}
        missing = sorted(wanted - self._regions.keys())
        if missing and not self._refused():
            await asyncio.gather(*(self._look_up(node) for node in missing))
        return self._regions

    def _refused(self) -> bool:
        return self._refused_at_s is not None and time.monotonic() - self._refused_at_s < _RETRY_S

    async def _look_up(self, node: str) -> None:
        path = f"{Collection('', 'v1', 'nodes').path}/{node}"
        try:
            found = await self._connection.get(path, params={}, timeout_s=_LOOKUP_S, accept=_METADATA_ONLY)
        except NotServedError:
            self._regions[node] = None
        except RefusedError as error:
            if self._refused_at_s is None:
                _log.info("endpoints' regions are not taken from their nodes: %s", error)
            self._refused_at_s = time.monotonic()
        except ApiError as error:
            _log.info("region of node %s is not known yet: %s", node, error)
        else:
            labels = (found.get("metadata") or {}).get("labels") or {}
            self._regions[node] = labels.get(TOPOLOGY_REGION_LABEL)
