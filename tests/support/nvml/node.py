"""A node's GPUs as the stand-in for the NVIDIA driver has them: built, watched and disturbed by tests.

    node = FakeNode.create(folder / "gpus")
    gpu = node.add(A100_80GB)
    subprocess.run(["heliotrope", "agent", …], env=os.environ | node.environment)
    assert node.read(gpu).sm_lock_mhz == (810, 810)

What is set here outlives every process, as the real driver's settings do; only `reboot` and settings take them back.
"""

import contextlib
import ctypes
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Self

from tests.support.nvml import build, library
from tests.support.nvml.products import A100_80GB, Lack, Product

DRIVER_VERSION = "580.95.05"
NO_INSTANCE = 0xFFFFFFFF
_LOG = 16_384
_VARIABLE = "HELIOTROPE_FAKE_NVML"


class Code(IntEnum):
    """Return codes of NVML that tests ask for most; any other number will do as well."""

    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    UNKNOWN = 999


class Privilege(IntEnum):
    """Who may change settings."""

    ANYBODY = 0
    CAP_SYS_ADMIN = 1
    """As the real driver asks."""
    NOBODY = 2


class _Circumstance(IntEnum):
    LOST = 0
    LOAD_PERMILLE = 1
    SLOWED_TO_MHZ = 2
    SLOWED_REASONS = 3
    TEMPERATURE = 4
    MIG_CURRENT = 5
    MIG_PENDING = 6
    PERSISTENCE = 7
    LACKS = 8


@dataclass(frozen=True, slots=True)
class GpuState:
    """A GPU as the driver holds it, with what NVML does not tell."""

    uuid: str
    sm_lock_mhz: tuple[int, int] | None
    """Lowest and highest SM clock allowed; None: not locked."""
    memory_lock_mhz: tuple[int, int] | None
    """Lowest and highest memory clock allowed; None: not locked."""
    power_limit_milliwatts: int
    persistence: bool
    sm_mhz: int
    """The clock that it runs at."""
    memory_mhz: int
    power_milliwatts: int
    utilization_percent: int
    temperature_celsius: int
    clock_event_reasons: int
    energy_millijoules: int
    energy_picojoules: int
    """What the counter has beyond `energy_millijoules`, below 1e9."""
    engines: int
    """Emulated engines that are attached."""


@dataclass(frozen=True, slots=True)
class Write:
    """One call that changed a setting, or tried to."""

    number: int
    """Of all writes to the node, from 0."""
    monotonic_ns: int
    realtime_ns: int
    pid: int
    """As the writer knows itself: in its own pid namespace."""
    gpu: int
    function: str
    arguments: tuple[int, int]
    code: int
    """What the call returned; 0: success."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A MIG device."""

    uuid: str
    gpu_instance: int
    compute_instance: int = 0


class Rule:
    """Calls that fail or hang, until this is removed. Also a context manager."""

    def __init__(self, node: "FakeNode", number: int) -> None:
        self._node = node
        self._number = number

    @property
    def waiting(self) -> int:
        """How many calls hang, those included whose process was killed meanwhile."""
        return int(self._node.library.heliotropeFakeWaiting(self._node.store, self._number))

    def remove(self) -> None:
        """Let calls through again; those that hang go on."""
        self._node.library.heliotropeFakeRemoveRule(self._node.store, self._number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class FakeNode:
    """The GPUs of one node. GPUs are named by their index, as `add` returns it."""

    def __init__(self, path: Path) -> None:
        """Open a state file that exists; see `create`."""
        self.path = path
        self.library = library.load()
        self.store = self.library.heliotropeFakeOpen(os.fsencode(path))
        if self.store is None:
            raise FileNotFoundError(f"{path} is no state file of this version of the stand-in driver")

    @classmethod
    def create(cls, path: Path, *products: Product, driver_version: str = DRIVER_VERSION) -> Self:
        """Make a state file of a node with these GPUs; the file must not exist."""
        code = library.load().heliotropeFakeCreate(os.fsencode(path), driver_version.encode())
        if code != 0:
            raise FileExistsError(f"{path} exists or cannot be made")
        node = cls(path)
        for product in products:
            node.add(product)
        return node

    @property
    def environment(self) -> dict[str, str]:
        """Variables under which a program takes this for its node's NVIDIA driver."""
        folders = (str(build.ensure()), os.environ.get("LD_LIBRARY_PATH", ""))
        return {
            "LD_LIBRARY_PATH": ":".join(folder for folder in folders if folder),
            _VARIABLE: str(self.path),
        }

    @contextlib.contextmanager
    def installed(self) -> Iterator[Self]:
        """Within it, nvidia-ml-py takes this for the node's driver in this very process."""
        before = os.environ.get(_VARIABLE)
        os.environ[_VARIABLE] = str(self.path)
        try:
            yield self
        finally:
            if before is None:
                del os.environ[_VARIABLE]
            else:
                os.environ[_VARIABLE] = before

    def add(self, product: Product = A100_80GB, *, gpu_uuid: str | None = None) -> int:
        """Put in one more GPU, with persistence mode on, and return its index."""
        fields = library.CProduct(
            name=product.name.encode(),
            memory_bytes=product.memory_bytes,
            lowest_mhz=product.lowest_mhz,
            highest_mhz=product.highest_mhz,
            step_mhz=product.step_mhz,
            memory_clock_count=len(product.memory_mhz),
            memory_mhz=product.memory_mhz,
            unloaded_milliwatts=product.unloaded_milliwatts,
            idle_milliwatts=product.idle_milliwatts,
            full_milliwatts=product.full_milliwatts,
            limit_lowest_milliwatts=product.limit_lowest_milliwatts,
            limit_highest_milliwatts=product.limit_highest_milliwatts,
            limit_default_milliwatts=product.limit_default_milliwatts,
            lacks=int(product.lacks),
        )
        name = gpu_uuid or f"GPU-{uuid.uuid4()}"
        index = int(self.library.heliotropeFakeAddGpu(self.store, ctypes.byref(fields), name.encode()))
        assert index >= 0, f"no room for another GPU, or {product} is not consistent"
        return index

    def __len__(self) -> int:
        return int(self.library.heliotropeFakeCount(self.store))

    # What the driver holds

    def read(self, gpu: int = 0) -> GpuState:
        """Everything about a GPU now."""
        seen = library.CObservation()
        self._check(self.library.heliotropeFakeObserve(self.store, gpu, ctypes.byref(seen)))
        return GpuState(
            uuid=seen.uuid.decode(),
            sm_lock_mhz=(seen.sm_lowest_mhz, seen.sm_highest_mhz) if seen.sm_highest_mhz else None,
            memory_lock_mhz=(seen.memory_lowest_mhz, seen.memory_highest_mhz) if seen.memory_highest_mhz else None,
            power_limit_milliwatts=seen.limit_milliwatts,
            persistence=bool(seen.persistence),
            sm_mhz=seen.sm_mhz,
            memory_mhz=seen.memory_mhz,
            power_milliwatts=seen.milliwatts,
            utilization_percent=seen.utilization_percent,
            temperature_celsius=seen.temperature,
            clock_event_reasons=seen.reasons,
            energy_millijoules=seen.millijoules,
            energy_picojoules=seen.picojoules,
            engines=seen.engines,
        )

    def states(self) -> tuple[GpuState, ...]:
        """All GPUs, by index."""
        return tuple(self.read(gpu) for gpu in range(len(self)))

    def uuid(self, gpu: int = 0) -> str:
        """The UUID of a GPU."""
        return self.read(gpu).uuid

    @property
    def write_count(self) -> int:
        """Calls that changed a setting or tried to, so far, by anybody."""
        return int(self.library.heliotropeFakeWriteCount(self.store))

    def writes(self, first: int = 0) -> tuple[Write, ...]:
        """The log of those calls from number `first` on, oldest first; it keeps the newest 16,384."""
        buffer = (library.CWrite * max(0, min(self.write_count - first, _LOG)))()
        copied = int(self.library.heliotropeFakeWrites(self.store, first, buffer, len(buffer)))
        start = self.write_count - copied if copied < len(buffer) else max(first, self.write_count - _LOG)
        return tuple(
            Write(
                number=start + place,
                monotonic_ns=each.monotonic_ns,
                realtime_ns=each.realtime_ns,
                pid=each.pid,
                gpu=each.gpu,
                function=self.library.heliotropeFakeFunctionName(each.function).decode(),
                arguments=(each.first, each.second),
                code=each.result,
            )
            for place, each in enumerate(buffer[:copied])
        )

    def calls(self, function: str) -> int:
        """How often a function was called so far, by anybody (`nvmlDeviceGetPowerUsage`, without suffixes like _v2)."""
        return int(self.library.heliotropeFakeCalls(self.store, self._function(function)))

    # Circumstances

    def load(self, permille: int, gpu: int = 0) -> None:
        """Let the GPU work, from 0 to 1000 ‰ of what it can; for one without an emulated engine."""
        assert 0 <= permille <= 1000
        self._set(gpu, _Circumstance.LOAD_PERMILLE, permille)

    def slow_down(self, mhz: int | None, reasons: int = 0x20, gpu: int = 0) -> None:
        """Hold the SM clock at most here, for these event reasons (thermal slowdown by software); None: no more."""
        self._set(gpu, _Circumstance.SLOWED_TO_MHZ, mhz or 0)
        self._set(gpu, _Circumstance.SLOWED_REASONS, reasons if mhz else 0)

    def temperature(self, celsius: int, gpu: int = 0) -> None:
        """Set the temperature; 0: as the power implies."""
        self._set(gpu, _Circumstance.TEMPERATURE, celsius)

    def lose(self, gpu: int = 0, *, lost: bool = True) -> None:
        """Let the GPU fall off the bus; `lost=False` or a reboot brings it back."""
        self._set(gpu, _Circumstance.LOST, int(lost))

    def persistence(self, on: bool, gpu: int = 0) -> None:
        """Set persistence mode; without it, settings revert when the last client of the driver ends."""
        self._set(gpu, _Circumstance.PERSISTENCE, int(on))

    def lack(self, lacks: Lack, gpu: int = 0) -> None:
        """Say what the GPU does not support."""
        self._set(gpu, _Circumstance.LACKS, int(lacks))

    def processes(
        self,
        pids: Sequence[int],
        gpu: int = 0,
        *,
        used_bytes: int = 0,
        mps: Sequence[int] = (),
        partition: Partition | None = None,
    ) -> None:
        """Say which processes have a compute context on the GPU, by the pids that the driver knows.

        Args:
            pids: those with a context of their own.
            gpu: its index.
            used_bytes: of the GPU's memory, by each.
            mps: clients of the Multi-Process Service, whose server is one of `pids`.
            partition: where they are; None: on the whole GPU.
        """
        place = (
            (NO_INSTANCE, NO_INSTANCE) if partition is None else (partition.gpu_instance, partition.compute_instance)
        )
        rows = [library.CProcess(pid, *place, 0, used_bytes) for pid in pids]
        rows += [library.CProcess(pid, *place, 1, used_bytes) for pid in mps]
        self._check(self.library.heliotropeFakeProcesses(self.store, gpu, _array(library.CProcess, rows), len(rows)))

    def mig(self, partitions: Sequence[Partition] | None, gpu: int = 0) -> None:
        """Turn MIG mode on, with these partitions, or off (None), at once."""
        rows = [
            library.CPartition(each.uuid.encode(), each.gpu_instance, each.compute_instance)
            for each in partitions or ()
        ]
        self._check(self.library.heliotropeFakePartitions(self.store, gpu, _array(library.CPartition, rows), len(rows)))
        self._set(gpu, _Circumstance.MIG_PENDING, int(partitions is not None))
        self._set(gpu, _Circumstance.MIG_CURRENT, int(partitions is not None))

    def mig_pending(self, pending: bool, gpu: int = 0) -> None:
        """Let MIG mode change at the next reboot."""
        self._set(gpu, _Circumstance.MIG_PENDING, int(pending))

    def privilege(self, who: Privilege) -> None:
        """Say who may change settings; at first anybody may."""
        self.library.heliotropeFakePrivileged(self.store, int(who))

    # Another program of the administrator's

    def foreign_sm_lock(self, lowest_mhz: int, highest_mhz: int, gpu: int = 0) -> None:
        """Somebody else locks the SM clock."""
        self._foreign("nvmlDeviceSetGpuLockedClocks", gpu, lowest_mhz, highest_mhz)

    def foreign_sm_reset(self, gpu: int = 0) -> None:
        """Somebody else lets the SM clock go."""
        self._foreign("nvmlDeviceResetGpuLockedClocks", gpu)

    def foreign_memory_lock(self, lowest_mhz: int, highest_mhz: int, gpu: int = 0) -> None:
        """Somebody else locks the memory clock."""
        self._foreign("nvmlDeviceSetMemoryLockedClocks", gpu, lowest_mhz, highest_mhz)

    def foreign_power_limit(self, milliwatts: int, gpu: int = 0) -> None:
        """Somebody else sets the power limit."""
        self._foreign("nvmlDeviceSetPowerManagementLimit", gpu, milliwatts)

    # Errors

    def fail(
        self,
        code: int,
        function: str | None = None,
        *,
        gpu: int | None = None,
        skip: int = 0,
        count: int | None = None,
    ) -> Rule:
        """Let calls return an error: of one function or (None) all of a GPU's; the first `skip` not, then `count`.

        Functions are named without suffixes like _v2 (`nvmlDeviceGetHandleByIndex`).
        """
        return self._rule(function, gpu, code=int(code), hang=False, skip=skip, count=count)

    def hang(
        self, function: str | None = None, *, gpu: int | None = None, skip: int = 0, count: int | None = None
    ) -> Rule:
        """Let calls block until the rule is removed; see `fail`."""
        return self._rule(function, gpu, code=0, hang=True, skip=skip, count=count)

    def unload(self) -> None:
        """Unload the driver: clients are told that it is not loaded, until `reboot`."""
        self.library.heliotropeFakeUnload(self.store)

    def reboot(self) -> None:
        """Load the driver anew: no locks, default limits, counters at zero, no processes; clients must come again."""
        self._check(self.library.heliotropeFakeReload(self.store))

    # Time

    @contextlib.contextmanager
    def time_stands_still(self) -> Iterator[None]:
        """Within it, time passes for the GPUs only by `advance`."""
        self._check(self.library.heliotropeFakeStandStill(self.store, 1))
        try:
            yield
        finally:
            self._check(self.library.heliotropeFakeStandStill(self.store, 0))

    def advance(self, nanoseconds: int) -> None:
        """Let time pass, while it stands still otherwise."""
        self.library.heliotropeFakeAdvance(self.store, nanoseconds)

    def close(self) -> None:
        """Let go of the file; it stays."""
        if self.store is not None:
            self.library.heliotropeFakeClose(self.store)
            self.store = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _function(self, name: str) -> int:
        number = int(self.library.heliotropeFakeFunction(name.encode()))
        assert number >= 0, f"the stand-in driver has no function {name}"
        return number

    def _rule(
        self, function: str | None, gpu: int | None, *, code: int, hang: bool, skip: int, count: int | None
    ) -> Rule:
        number = self.library.heliotropeFakeAddRule(
            self.store,
            -1 if function is None else self._function(function),
            -1 if gpu is None else gpu,
            code,
            int(hang),
            skip,
            -1 if count is None else count,
        )
        assert number >= 0, "too many rules at once"
        return Rule(self, int(number))

    def _foreign(self, function: str, gpu: int, first: int = 0, second: int = 0) -> None:
        self._check(self.library.heliotropeFakeForeign(self.store, gpu, self._function(function), first, second))

    def _set(self, gpu: int, which: _Circumstance, value: int) -> None:
        self._check(self.library.heliotropeFakeCircumstance(self.store, gpu, int(which), value))

    @staticmethod
    def _check(code: int) -> None:
        assert code == 0, f"the stand-in driver answers {code}"


def _array(kind: type[ctypes.Structure], rows: Sequence[ctypes.Structure]) -> "ctypes.Array[ctypes.Structure]":
    return (kind * len(rows))(*rows)
