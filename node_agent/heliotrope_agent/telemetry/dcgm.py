"""Series with the names, units and labels of NVIDIA's DCGM exporter, so that what reads those reads these.

Names and units: dcgm-exporter's `etc/default-counters.csv` (Apache-2.0); violations in nanoseconds, as its newer
versions and NVML say.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from heliotrope.units import watts_from_milliwatts
from heliotrope_agent.driver.interface import Device, Reading
from heliotrope_agent.telemetry.exposition import Family, Kind, label_text
from heliotrope_agent.telemetry.tenants import Tenant

ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"


@dataclass(frozen=True, slots=True)
class GpuNow:
    """A GPU as far as it is known at this moment."""

    device: Device
    reading: Reading
    energy_millijoules: int | None
    tenants: tuple[Tenant, ...]


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else watts_from_milliwatts(float(milliwatts))


_FIELDS: tuple[tuple[str, Kind, str, Callable[[GpuNow], float | None]], ...] = (
    ("DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz).", lambda gpu: gpu.reading.sm_clock_mhz),
    ("DCGM_FI_DEV_MEM_CLOCK", "gauge", "Memory clock frequency (in MHz).", lambda gpu: gpu.reading.memory_clock_mhz),
    ("DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C).", lambda gpu: gpu.reading.temperature_celsius),
    ("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).", lambda gpu: _watts(gpu.reading.power_milliwatts)),
    (
        "DCGM_FI_DEV_POWER_MGMT_LIMIT",
        "gauge",
        "Power limit that was set (in W).",
        lambda gpu: _watts(gpu.reading.power_limit_milliwatts),
    ),
    (
        ENERGY,
        "counter",
        "Total energy consumption since the driver was loaded (in mJ).",
        lambda gpu: gpu.energy_millijoules,
    ),
    ("DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %).", lambda gpu: gpu.reading.utilization_percent),
    (
        "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
        "gauge",
        "NVML's bits of what holds the clock down.",
        lambda gpu: gpu.reading.clock_event_reasons,
    ),
    (
        "DCGM_FI_DEV_POWER_VIOLATION",
        "counter",
        "Time in which the power limit held the clock down (in ns).",
        lambda gpu: gpu.reading.power_violation_nanoseconds,
    ),
    (
        "DCGM_FI_DEV_THERMAL_VIOLATION",
        "counter",
        "Time in which temperature held the clock down (in ns).",
        lambda gpu: gpu.reading.thermal_violation_nanoseconds,
    ),
)


def dcgm_families(gpus: Iterable[GpuNow], node_name: str) -> list[Family]:
    """The series of every GPU; of a GPU that several containers have, one for each, with the same value."""
    gpus = tuple(gpus)
    labels = [_labels(gpu, node_name) for gpu in gpus]
    families = []
    for name, kind, text, value_of in _FIELDS:
        family = Family(name, kind, text)
        for gpu, texts in zip(gpus, labels, strict=True):
            value = value_of(gpu)
            for each in texts:
                family.add(each, value)
        families.append(family)
    return families


def _labels(gpu: GpuNow, node_name: str) -> list[str]:
    device = gpu.device
    own = {
        "gpu": str(device.index),
        "UUID": device.uuid,
        "device": f"nvidia{device.index}",
        "modelName": device.product,
        "Hostname": node_name,
    }
    if not gpu.tenants:
        return [label_text(own)]
    # One container may have several shares of a GPU.
    holders = dict.fromkeys((each.container, each.payer.pod.namespace, each.payer.pod.name) for each in gpu.tenants)
    return [label_text({**own, "container": c, "namespace": n, "pod": p}) for c, n, p in holders]
