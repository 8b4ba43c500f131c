"""What GPUs were, by the NodePower's status, where the folder with the file of originals is gone.

An agent that was killed just after somebody had removed the folder has put nothing back, and the next one finds no
file: what is set would count as found. The status on the API server still says what was set, and what was before.
"""

from collections.abc import Mapping

from heliotrope.api.v1alpha1.nodepower import GpuStatus, NodePowerStatus
from heliotrope.units import milliwatts_from_watts, watts_from_milliwatts
from heliotrope_agent.driver.interface import Reading
from heliotrope_agent.state.records import Knob, Levels, Ownership


def presumed(
    status: NodePowerStatus | None,
    readings: Mapping[str, Reading],
    resting: Levels,
    boot_id: str,
    now_unix_s: float,
) -> tuple[Ownership, ...]:
    """Records of the GPUs that a status says are set, of those that there are.

    Power limits are whole watts in a status. One that reads otherwise than it was set is somebody else's, or of a
    driver that has begun anew.

    Args:
        status: of the NodePower, by an agent before this one.
        readings: of the GPUs, now.
        resting: clock locks that GPUs have at rest.
        boot_id: of this boot.
        now_unix_s: the time.
    """
    found = () if status is None else status.gpus
    records = (
        _presumed(each, readings[each.uuid], resting, boot_id, now_unix_s) for each in found if each.uuid in readings
    )
    return tuple(each for each in records if each is not None)


def _presumed(gpu: GpuStatus, reading: Reading, resting: Levels, boot_id: str, now_unix_s: float) -> Ownership | None:
    ours, before = gpu.effective, gpu.original
    if ours is None or before is None:
        return None
    touched = set()
    if ours.sm_clock_mhz is not None:
        touched.add(Knob.SM_CLOCK)
    if ours.memory_clock_mhz is not None:
        touched.add(Knob.MEMORY_CLOCK)
    limit = reading.power_limit_milliwatts
    if (
        ours.watts is not None
        and before.watts is not None
        and ours.watts != before.watts
        and limit is not None
        and round(watts_from_milliwatts(limit)) == ours.watts
    ):
        touched.add(Knob.POWER_LIMIT)
    if not touched:
        return None
    kept = Knob.POWER_LIMIT in touched
    return Ownership(
        uuid=gpu.uuid,
        original=Levels(
            resting.sm_clock_mhz,
            resting.memory_clock_mhz,
            _milliwatts(before.watts) if kept else None,
        ),
        set=Levels(ours.sm_clock_mhz, ours.memory_clock_mhz, limit if kept else None),
        touched=frozenset(touched),
        namespace="",
        pod="",
        pod_uid="",
        since_unix_s=now_unix_s,
        boot_id=boot_id,
    )


def _milliwatts(watts: int | None) -> int | None:
    return None if watts is None else round(milliwatts_from_watts(watts))
