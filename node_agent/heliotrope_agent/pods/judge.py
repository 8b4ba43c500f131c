"""Whether a GPU may be touched: what the kubelet, the processes and the intents say, put together.

A GPU is eligible if the kubelet gave all of it to one container, an intent names that container's pod, a process of the
pod's very UID runs on it and no other process does. Whatever is missing or speaks against it makes it something else.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from heliotrope.api.v1alpha1.nodepower import PowerIntent
from heliotrope_agent.driver.interface import Device
from heliotrope_agent.pods.claims import ANYWHERE, Claim, Holder, PodName, Standing
from heliotrope_agent.pods.device_ids import Part, place
from heliotrope_agent.pods.processes import Running

Verified = tuple[PodName, str]
"""A pod and its UID."""


@dataclass(frozen=True, slots=True)
class Given:
    """What the kubelet gave away, by GPU."""

    claims: Mapping[str, tuple[tuple[Claim, Part], ...]]
    """By UUID, or `ANYWHERE`."""

    @property
    def anywhere(self) -> bool:
        """Whether it gave away something that may be any GPU of the node."""
        return ANYWHERE in self.claims


def given(devices: Iterable[Device], claims: Iterable[Claim]) -> Given:
    """Lay the kubelet's claims on the driver's GPUs; those for GPUs that the driver does not have are left out."""
    devices = tuple(devices)
    uuids = {device.index: device.uuid for device in devices}
    partitioned = any(device.mig for device in devices)
    laid: dict[str, list[tuple[Claim, Part]]] = {}
    for claim in claims:
        where = place(claim, uuids)
        if where is None:
            continue
        # Which of the partitioned GPUs it is nobody needs to know: they are left alone anyway.
        if where.uuid is not None or not (partitioned and where.part is Part.PARTITION):
            laid.setdefault(where.uuid or ANYWHERE, []).append((claim, where.part))
    return Given({uuid: tuple(each) for uuid, each in laid.items()})


def judge(
    devices: Sequence[Device],
    claims: Sequence[Claim],
    running: Mapping[str, Running],
    intents: Sequence[PowerIntent],
    verified: Mapping[str, Verified],
) -> dict[str, Holder]:
    """Who has each GPU.

    Args:
        devices: the driver's GPUs.
        claims: what the kubelet says.
        running: whose processes run on a GPU, by UUID; a GPU that is missing is one of which the driver cannot tell.
        intents: those in force.
        verified: pods that were verified on a GPU a short time ago. They stay so while no process at all is seen there:
            containers restart. Where the kubelet lists nobody and their processes alone run, it is the kubelet that
            has restarted, or the pod that is ending: nobody can tell.

    Returns:
        By UUID, for every device.
    """
    laid = given(devices, claims)
    uids = _uids(intents)
    return {
        device.uuid: _holder(
            device, laid.claims.get(device.uuid, ()), laid.anywhere, running.get(device.uuid), uids, verified
        )
        for device in devices
    }


def _uids(intents: Iterable[PowerIntent]) -> dict[PodName, frozenset[str]]:
    found: dict[PodName, frozenset[str]] = {}
    for intent in intents:
        for pod in intent.pods:
            name = PodName(intent.namespace, pod.name)
            found[name] = found.get(name, frozenset()) | {pod.uid.lower()}
    return found


def _holder(
    device: Device,
    claims: Sequence[tuple[Claim, Part]],
    anywhere: bool,
    running: Running | None,
    uids: Mapping[PodName, frozenset[str]],
    verified: Mapping[str, Verified],
) -> Holder:
    pods = frozenset(claim.pod for claim, _ in claims)
    pod = next(iter(pods)) if len(pods) == 1 else None
    if device.mig or any(part is Part.PARTITION for _, part in claims):
        return Holder(Standing.MIG, pod, pods)
    if len(claims) > 1 or any(part is Part.SHARE for _, part in claims):
        return Holder(Standing.SHARED, pod, pods)
    if pod is None:
        return _unclaimed(running, uids, verified.get(device.uuid), anywhere=anywhere)
    if pod not in uids:
        return Holder(Standing.FOREIGN_OWNER, pod)
    if len(uids[pod]) > 1:
        return Holder(Standing.UNVERIFIED, pod)
    (uid,) = uids[pod]
    if running is not None and (running.outside or running.pods - {uid}):
        return Holder(Standing.FOREIGN_OWNER, pod)
    sure = running is not None and uid in running.pods and not running.unknown
    if not sure and (running is None or running == Running()):
        sure = verified.get(device.uuid) == (pod, uid)
    return Holder(Standing.ELIGIBLE if sure and not anywhere else Standing.UNVERIFIED, pod)


def _unclaimed(
    running: Running | None, uids: Mapping[PodName, frozenset[str]], before: Verified | None, *, anywhere: bool
) -> Holder:
    if running is None or running.unknown or anywhere:
        return Holder(Standing.UNVERIFIED)
    if (
        before is not None
        and running == Running(frozenset({before[1]}))
        and uids.get(before[0]) == frozenset({before[1]})
    ):
        # A kubelet that has just started does not list its pods for some seconds.
        return Holder(Standing.UNVERIFIED, before[0])
    return Holder(Standing.FOREIGN_OWNER if running.outside or running.pods else Standing.FREE)
