"""The Lease that keeps all NodePowers alive: node agents put their GPUs back when it was not renewed for its duration.

It is renewed only after a pass over all policies has gone well, by the replica that leads. An operator that hangs, that
cannot read or write the cluster, or that is gone, so leaves no clock low for longer than the Lease lasts.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from heliotrope.api.v1alpha1.common import POWER_LEASE
from heliotrope_operator.resources import LEASES
from heliotrope_operator.writes import Writes

DURATION_S = 60
"""Long enough for another replica to take over, short enough for a clock that is too low."""
RENEW_S = 15.0


class PowerLease:
    """Renews it now and then."""

    def __init__(self, writes: Writes, *, namespace: str, identity: str, unix_clock: Callable[[], float]) -> None:
        self._writes = writes
        self._namespace = namespace
        self._identity = identity
        self._unix_clock = unix_clock
        self._renewed_unix_s = float("-inf")

    async def renew(self) -> None:
        """Renew it if it is time.

        Raises:
            NotLeaderError: if this replica may not write.
            ApiError: if the write fails.
        """
        now = self._unix_clock()
        if 0.0 <= now - self._renewed_unix_s < RENEW_S:
            return
        document = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": POWER_LEASE, "namespace": self._namespace},
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": DURATION_S,
                "renewTime": datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            },
        }
        # Whoever leads holds it, whatever the one before has written.
        await self._writes.apply(LEASES.path(self._namespace, POWER_LEASE), document, force=True)
        self._renewed_unix_s = now
