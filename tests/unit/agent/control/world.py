"""Facts for plans, and a driver in memory that a whole loop can work on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from heliotrope.api.v1alpha1.common import Enforcement, ObjectMeta
from heliotrope.api.v1alpha1.nodepower import (
    IntentPod,
    NodePower,
    NodePowerSpec,
    NodePowerStatus,
    PowerIntent,
)
from heliotrope_agent.control.plan import Facts
from heliotrope_agent.driver.interface import Device, Reading
from heliotrope_agent.errors import DeviceGoneError, DriverError, PodsUnknownError
from heliotrope_agent.kube.wishes import Wishes
from heliotrope_agent.pods.claims import Holder, PodName, Standing

POD = PodName("serving", "decode-0")
OTHER = PodName("serving", "prefill-0")
CLOCKS = tuple(range(210, 1411, 15))


def gpu(number: int, **fields: object) -> Device:
    device = Device(
        uuid=f"GPU-{number}",
        index=number,
        product="A100",
        sm_clocks_mhz=CLOCKS,
        memory_clocks_mhz=(810, 1593),
        milliwatts_min=100_000,
        milliwatts_max=400_000,
        milliwatts_default=400_000,
    )
    return replace(device, **fields)  # type: ignore[arg-type]


def uid(pod: PodName) -> str:
    return f"uid-{pod.name}"


def intent(*pods: PodName, variant: str = "v", **fields: object) -> PowerIntent:
    named = tuple(IntentPod(name=each.name, uid=uid(each)) for each in pods)
    return PowerIntent(namespace="serving", variant=variant, pods=named, **fields)  # type: ignore[arg-type]


def wishes(
    *intents: PowerIntent, enforcement: Enforcement = Enforcement.ENFORCE, until_s: float = float("inf")
) -> Wishes:
    power = NodePower(
        api_version="heliotrope.io/v1alpha1",
        metadata=ObjectMeta(name="node", uid="u", generation=1),
        spec=NodePowerSpec(enforcement=enforcement, intents=intents),
    )
    return Wishes(power, known=True, lease_until_s=until_s)


def eligible(*pods: PodName | None) -> Mapping[str, Holder]:
    """GPU 0, 1, … are these pods', or free."""
    return {
        f"GPU-{number}": Holder(Standing.FREE) if pod is None else Holder(Standing.ELIGIBLE, pod)
        for number, pod in enumerate(pods)
    }


READING = Reading(sm_clock_mhz=210, memory_clock_mhz=1593, power_limit_milliwatts=400_000, utilization_percent=0)


def facts(wish: Wishes, holders: Mapping[str, Holder] | None, **fields: object) -> Facts:
    """Two idle GPUs that nobody has changed yet."""
    devices = (gpu(0), gpu(1))
    found = Facts(1000.0, devices, {each.uuid: READING for each in devices}, holders, wish, {}, {})
    return replace(found, **fields)  # type: ignore[arg-type]


@dataclass
class MemoryGpu:
    """What a driver holds of one GPU."""

    sm: int | None = None
    memory: int | None = None
    limit: int = 400_000


@dataclass
class MemoryDriver:
    """Implements `Driver` in memory; a write asks `watcher` first, and fails while `failing` has its GPU's UUID."""

    found: Sequence[Device]
    gpus: dict[str, MemoryGpu] = field(default_factory=dict)
    failing: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    ignored: bool = False
    """Whether power limits are taken and nothing comes of them."""
    watcher: Callable[[str, bool], None] = lambda uuid, back: None
    """Told the UUID, and whether the write is one that puts back."""

    def __post_init__(self) -> None:
        self.gpus = {each.uuid: MemoryGpu() for each in self.found}

    def devices(self) -> tuple[Device, ...]:
        return tuple(each for each in self.found if each.uuid not in self.gone)

    def read(self, uuid: str) -> Reading:
        if uuid in self.gone:
            raise DeviceGoneError(f"{uuid} is gone")
        held = self.gpus[uuid]
        return replace(READING, sm_clock_mhz=held.sm or 210, power_limit_milliwatts=held.limit)

    def energy_millijoules(self, uuid: str) -> int | None:
        return None

    def processes(self, uuid: str) -> tuple[int, ...] | None:
        return None

    def _write(self, uuid: str, *, back: bool) -> MemoryGpu:
        if uuid in self.gone:
            raise DeviceGoneError(f"{uuid} is gone")
        if uuid in self.failing:
            raise DriverError(f"{uuid} fails")
        self.watcher(uuid, back)
        return self.gpus[uuid]

    def lock_sm_clock(self, uuid: str, mhz: int) -> None:
        assert mhz in CLOCKS
        self._write(uuid, back=False).sm = mhz

    def reset_sm_clock(self, uuid: str) -> None:
        self._write(uuid, back=True).sm = None

    def lock_memory_clock(self, uuid: str, mhz: int) -> None:
        self._write(uuid, back=False).memory = mhz

    def reset_memory_clock(self, uuid: str) -> None:
        self._write(uuid, back=True).memory = None

    def set_power_limit(self, uuid: str, milliwatts: int) -> None:
        held = self._write(uuid, back=milliwatts == 400_000)
        if not self.ignored:
            held.limit = milliwatts

    def close(self) -> None:
        pass

    def as_found(self) -> bool:
        return all(each == MemoryGpu() for each in self.gpus.values())


@dataclass
class MemoryCluster:
    """Implements `Cluster` in memory."""

    wished: Wishes = field(default_factory=Wishes)
    status: NodePowerStatus | None = None
    reports: int = 0
    events: list[tuple[str, str]] = field(default_factory=list)

    def wishes(self) -> Wishes:
        return self.wished

    def report(self, status: NodePowerStatus) -> None:
        self.status, self.reports = status, self.reports + 1

    def event(self, reason: str, message: str, *, warning: bool) -> None:
        self.events.append((reason, message))


@dataclass
class MemoryOwners:
    """Implements `Owners` in memory."""

    found: Mapping[str, Holder] | None = None

    def holders(self, intents: Sequence[PowerIntent]) -> Mapping[str, Holder]:
        if self.found is None:
            raise PodsUnknownError("the kubelet does not answer")
        return self.found
