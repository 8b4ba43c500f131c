"""Who has which GPU: the kubelet and the driver asked, and what was verified remembered for a while."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from heliotrope.api.v1alpha1.nodepower import PowerIntent
from heliotrope_agent.driver.interface import Device, Driver
from heliotrope_agent.errors import DriverError
from heliotrope_agent.pods.claims import Claim, Holder, Standing
from heliotrope_agent.pods.judge import Verified, given, judge
from heliotrope_agent.pods.kubelet import Kubelet
from heliotrope_agent.pods.processes import ProcessPods, Running

_NOTHING_AGAINST = (Standing.ELIGIBLE, Standing.UNVERIFIED)


@dataclass(frozen=True, slots=True)
class _Seen:
    claims: tuple[Claim, ...]
    asked_s: float


class KubeletOwners:
    """Implements `Owners`. It may be asked from several threads.

    A pod that was verified on a GPU stays so for `keep_s` seconds without any process on it, which is what a container
    that starts again looks like. A pod of the same name with another UID is not the same.
    """

    def __init__(
        self,
        driver: Driver,
        kubelet: Kubelet,
        processes: ProcessPods,
        *,
        clock: Callable[[], float] = time.monotonic,
        keep_s: float = 60.0,
    ) -> None:
        self._driver = driver
        self._kubelet = kubelet
        self._processes = processes
        self._clock = clock
        self._keep_s = keep_s
        self._lock = threading.Lock()
        self._verified: dict[str, tuple[Verified, float]] = {}
        self._seen: _Seen | None = None

    def holders(self, intents: Sequence[PowerIntent]) -> Mapping[str, Holder]:
        """By UUID, for every GPU of the node.

        Args:
            intents: those in force, whose pods' UIDs the processes on a GPU must be of.

        Raises:
            PodsUnknownError: if the kubelet does not answer.
            DriverError: if the driver cannot tell which GPUs there are.
        """
        with self._lock:
            claims = self._ask()
            devices = self._driver.devices()
            running = {device.uuid: found for device in devices if (found := self._running(device)) is not None}
            now_s = self._clock()
            remembered = {uuid: pod for uuid, (pod, at_s) in self._verified.items() if now_s - at_s <= self._keep_s}
            holders = judge(devices, claims, running, intents, remembered)
            self._remember(holders, running, remembered, now_s)
            return holders

    def recent_claims(self, max_age_s: float = 0.5) -> Mapping[str, tuple[Claim, ...]]:
        """What the kubelet gave away, by UUID or `ANYWHERE`, as it was at most so many seconds ago; unverified.

        Raises:
            PodsUnknownError: if the kubelet does not answer.
            DriverError: if the driver cannot tell which GPUs there are.
        """
        seen = self._seen
        fresh = seen is not None and self._clock() - seen.asked_s <= max_age_s
        claims = seen.claims if seen is not None and fresh else self._ask()
        laid = given(self._driver.devices(), claims)
        return {uuid: tuple(claim for claim, _ in each) for uuid, each in laid.claims.items()}

    def _ask(self) -> tuple[Claim, ...]:
        asked_s = self._clock()
        claims = self._kubelet.claims()
        self._seen = _Seen(claims, asked_s)
        return claims

    def _running(self, device: Device) -> Running | None:
        """None: the driver cannot tell. If a process has just ended, it is asked once more."""
        try:
            running = self._processes_on(device.uuid)
            return self._processes_on(device.uuid) if running is not None and running.unknown else running
        except DriverError:
            return None

    def _processes_on(self, uuid: str) -> Running | None:
        pids = self._driver.processes(uuid)
        return None if pids is None else self._processes.running(pids)

    def _remember(
        self,
        holders: Mapping[str, Holder],
        running: Mapping[str, Running],
        remembered: Mapping[str, Verified],
        now_s: float,
    ) -> None:
        before, self._verified = self._verified, {}
        for uuid, holder in holders.items():
            uids = running.get(uuid, Running()).pods
            if holder.standing is Standing.ELIGIBLE and holder.pod is not None and uids:
                (uid,) = uids
                self._verified[uuid] = (holder.pod, uid), now_s
            elif holder.standing in _NOTHING_AGAINST and uuid in remembered and remembered[uuid][0] == holder.pod:
                self._verified[uuid] = before[uuid]
