"""Which replica may write: the holder of a Lease.

The rules are those of Kubernetes' own controllers. A holder that cannot renew stops writing before its Lease runs out,
so at no time two replicas believe that they lead. Times of other replicas are never compared with the own clock: a
Lease counts as abandoned when it did not change for its duration, as seen from here.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from heliotrope_operator.errors import ApiError, ConflictError, NotFoundError
from heliotrope_operator.kube import Kube
from heliotrope_operator.metrics import Metrics
from heliotrope_operator.resources import LEASES
from heliotrope_operator.settings import LeaseSettings

_log = logging.getLogger(__name__)

LEASE = "heliotrope-operator"

Document = dict[str, Any]


class Leadership:
    """Takes and renews the Lease. `held` is the only thing that writers need to know."""

    def __init__(
        self,
        kube: Kube,
        metrics: Metrics,
        *,
        namespace: str,
        identity: str,
        settings: LeaseSettings,
        unix_clock: Callable[[], float],
    ) -> None:
        self._kube = kube
        self._metrics = metrics
        self._namespace = namespace
        self._identity = identity
        self._settings = settings
        self._unix_clock = unix_clock
        self._held_until = float("-inf")
        self._clock: Callable[[], float] = lambda: 0.0
        """The event loop's, once there is one; metrics ask from another thread."""
        self._seen: tuple[str, float] = ("", float("-inf"))
        """The Lease's version and when it was first seen here."""

    @property
    def held(self) -> bool:
        """True while no other replica can be the leader."""
        return self._clock() < self._held_until

    async def run(self, acquired: Callable[[], None]) -> None:
        """Take the Lease when it is free and renew it, until cancelled. `acquired` is called after each taking."""
        while True:
            before = self.held
            await self._attempt()
            self._metrics.leader.set(self.held)
            if self.held and not before:
                _log.info("%s leads and writes", self._identity)
                acquired()
            elif before and not self.held:
                _log.warning("%s could not renew its Lease and stops writing", self._identity)
            await asyncio.sleep(self._settings.retry_s)

    async def release(self) -> None:
        """Give the Lease back, so that another replica need not wait for it to run out."""
        if not self.held:
            return
        self._held_until = float("-inf")
        self._metrics.leader.set(0)
        try:
            lease = await self._kube.get(self._path)
            if lease["spec"].get("holderIdentity") == self._identity:
                spec = lease["spec"] | {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._now()}
                await self._kube.replace(self._path, lease | {"spec": spec})
        except ApiError as error:
            _log.warning("the Lease was not given back and runs out by itself: %s", error)

    @property
    def _path(self) -> str:
        return LEASES.path(self._namespace, LEASE)

    async def _attempt(self) -> None:
        self._clock = asyncio.get_running_loop().time
        started = self._clock()
        try:
            async with asyncio.timeout(self._settings.renew_deadline_s):
                taken = await self._take()
        except ConflictError:
            return  # another replica was faster
        except (ApiError, TimeoutError) as error:
            _log.warning("the Lease cannot be read or written: %s", str(error) or "no answer")
            return
        self._held_until = started + self._settings.renew_deadline_s if taken else float("-inf")

    async def _take(self) -> bool:
        try:
            lease = await self._kube.get(self._path)
        except NotFoundError:
            await self._kube.create(LEASES.path(self._namespace), self._new_lease())
            return True
        version, now = lease["metadata"]["resourceVersion"], asyncio.get_running_loop().time()
        if version != self._seen[0]:
            self._seen = (version, now)
        spec: Document = lease.get("spec", {})
        holder = spec.get("holderIdentity") or ""
        duration = float(spec.get("leaseDurationSeconds") or self._settings.duration_s)
        if holder not in ("", self._identity) and now < self._seen[1] + duration:
            return False
        renewed = spec | {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(round(self._settings.duration_s), 1),
            "renewTime": self._now(),
        }
        if holder != self._identity:
            renewed |= {"acquireTime": self._now(), "leaseTransitions": int(spec.get("leaseTransitions") or 0) + 1}
        await self._kube.replace(self._path, lease | {"spec": renewed})
        return True

    def _new_lease(self) -> Document:
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"namespace": self._namespace, "name": LEASE},
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": max(round(self._settings.duration_s), 1),
                "acquireTime": self._now(),
                "renewTime": self._now(),
                "leaseTransitions": 0,
            },
        }

    def _now(self) -> str:
        return datetime.fromtimestamp(self._unix_clock(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
