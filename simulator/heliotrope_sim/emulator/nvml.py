"""The GPUs of one engine in the fake driver, through NVIDIA's own binding.

A real driver's counters and clocks follow what its devices do; the fake one has to be told. So beside NVML's functions
this calls those that only the fake library has (`tests/support/nvml`), and refuses every other library.
"""

import contextlib
import os
from collections.abc import Callable, Sequence
from ctypes import c_char_p, c_uint, c_ulonglong
from dataclasses import dataclass
from typing import Any

import pynvml

from heliotrope.errors import InvalidInputError

_ATTACH, _DETACH, _DRAW = "heliotropeFakeAttach", "heliotropeFakeDetach", "heliotropeFakeDraw"


class DriverCallError(Exception):
    """The driver refused a call; it may answer the next."""


@dataclass(frozen=True, slots=True)
class Draw:
    """What an engine tells the driver of one GPU."""

    millijoules: int
    """Drawn since it last told."""
    milliwatts: int
    """Drawn now."""
    busy_milliwatts: int
    """Drawn by the last step while it ran, at `busy_mhz`, by which the driver keeps a power limit; 0: as told last."""
    busy_mhz: int
    utilization_percent: int


class NvmlGroup:
    """The GPUs of a tensor-parallel group. While it is open their counters move by `draw` alone."""

    def __init__(self, uuids: Sequence[str]) -> None:
        """Find them and attach this process to each.

        Raises:
            InvalidInputError: if there is no driver, it is not the fake one, or it does not know a GPU.
        """
        self.uuids = tuple(uuids)
        self._pid = os.getpid()
        self._attached: list[str] = []
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise InvalidInputError(
                "gpu.uuids", f"no driver answers ({error}); start with LD_LIBRARY_PATH at the fake libnvidia-ml.so.1"
            ) from None
        try:
            self._attach = _function(_ATTACH, c_char_p, c_uint)
            self._detach = _function(_DETACH, c_char_p, c_uint)
            self._draw = _function(_DRAW, c_char_p, c_uint, c_ulonglong, c_uint, c_uint, c_uint, c_uint)
            self._handles = [_handle(i, uuid) for i, uuid in enumerate(self.uuids)]
            self.indices = tuple(int(pynvml.nvmlDeviceGetIndex(handle)) for handle in self._handles)
            """The driver's numbers of them."""
            self._attach_all()
        except pynvml.NVMLError as error:
            self.close()
            raise InvalidInputError("gpu.uuids", f"the driver fails: {error}") from None
        except InvalidInputError:
            self.close()
            raise

    def _attach_all(self) -> None:
        for i, uuid in enumerate(self.uuids):
            if code := self._attach(uuid.encode(), self._pid):
                raise InvalidInputError(
                    f"gpu.uuids.{i}", f"the driver does not let an engine run on {uuid}: {_text(code)}"
                )
            self._attached.append(uuid)

    def sm_clock_mhz(self) -> int:
        """The clock that the group runs at: that of its slowest GPU, as they wait for each other in every layer.

        Raises:
            DriverCallError: if the driver does not tell.
        """
        try:
            return min(int(pynvml.nvmlDeviceGetClockInfo(each, pynvml.NVML_CLOCK_SM)) for each in self._handles)
        except pynvml.NVMLError as error:
            raise DriverCallError(str(error)) from None

    def draw(self, position: int, draw: Draw) -> None:
        """Tell what one of the GPUs drew.

        Raises:
            DriverCallError: if the driver does not take it.
        """
        code = self._draw(
            self.uuids[position].encode(),
            self._pid,
            draw.millijoules,
            draw.milliwatts,
            draw.busy_milliwatts,
            draw.busy_mhz,
            draw.utilization_percent,
        )
        if code:
            raise DriverCallError(_text(code))

    def close(self) -> None:
        """Let go of them; what was told stays in their counters."""
        while self._attached:
            self._detach(self._attached.pop().encode(), self._pid)
        # A driver that was loaded anew meanwhile knows this client no more.
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _function(name: str, *argument_types: Any) -> Callable[..., int]:
    try:
        found = getattr(pynvml.nvmlLib, name)
    except AttributeError:
        raise InvalidInputError(
            "gpu.uuids",
            f"libnvidia-ml.so.1 is a real driver's (it has no {name}): an emulated engine cannot move the energy "
            f"counter of a real GPU; leave out gpu, or set LD_LIBRARY_PATH to the fake driver's folder",
        ) from None
    found.argtypes = argument_types
    found.restype = c_uint
    return found  # type: ignore[no-any-return]


def _handle(position: int, uuid: str) -> Any:
    try:
        return pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except pynvml.NVMLError as error:
        raise InvalidInputError(f"gpu.uuids.{position}", f"the driver does not know {uuid}: {error}") from None


def _text(code: int) -> str:
    return str(pynvml.NVMLError(code))
