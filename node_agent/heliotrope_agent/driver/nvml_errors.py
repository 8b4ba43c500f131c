"""NVML's return codes as the agent's errors, each with what to do."""

from collections.abc import Mapping

import pynvml

from heliotrope_agent.errors import (
    DeniedError,
    DeviceGoneError,
    DeviceUnknownError,
    DriverError,
    DriverMissingError,
    UnsupportedError,
)

LASTING = frozenset((pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND))
"""Codes of a getter that mean: this device will never have the value."""

SILENT = LASTING | {
    pynvml.NVML_ERROR_NO_DATA,
    pynvml.NVML_ERROR_NOT_READY,
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_DEPRECATED,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
}
"""Codes of a getter that mean: the value is not to be had here, now, for us or with this driver. It is None then."""

_MISSING = (
    "is the NVIDIA driver loaded (nvidia-smi), and is its libnvidia-ml.so.1 visible here (NVIDIA container runtime)?"
)
_GONE = (
    "the GPU is lost or awaits a reset; the kernel's log (dmesg, Xid) says why, and a reset or reboot brings it back"
)
_DENIED = "changing a GPU's settings needs root with CAP_SYS_ADMIN (a privileged container)"
_UNSUPPORTED = "this GPU or its driver cannot do this; leave the setting out for it"

_KINDS: Mapping[int, tuple[type[DriverError], str]] = {
    pynvml.NVML_ERROR_UNINITIALIZED: (
        DriverMissingError,
        "the driver was reloaded or not initialised; asked anew soon",
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (DriverMissingError, _MISSING),
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (DriverMissingError, _MISSING),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        DriverMissingError,
        "library and kernel module are of different versions: reload the driver or reboot after its upgrade",
    ),
    pynvml.NVML_ERROR_NOT_FOUND: (DeviceUnknownError, "the driver knows no such GPU; it was removed or renamed"),
    pynvml.NVML_ERROR_GPU_NOT_FOUND: (DeviceUnknownError, "the driver knows no such GPU; it was removed or renamed"),
    pynvml.NVML_ERROR_GPU_IS_LOST: (DeviceGoneError, _GONE),
    pynvml.NVML_ERROR_RESET_REQUIRED: (DeviceGoneError, _GONE),
    pynvml.NVML_ERROR_NO_PERMISSION: (DeniedError, _DENIED),
    pynvml.NVML_ERROR_OPERATING_SYSTEM: (
        DeniedError,
        "the kernel refuses access to the device (cgroup device rules); the container must be privileged",
    ),
    pynvml.NVML_ERROR_NOT_SUPPORTED: (UnsupportedError, _UNSUPPORTED),
    pynvml.NVML_ERROR_FREQ_NOT_SUPPORTED: (UnsupportedError, _UNSUPPORTED),
    pynvml.NVML_ERROR_VGPU_ECC_NOT_SUPPORTED: (UnsupportedError, _UNSUPPORTED),
    pynvml.NVML_ERROR_RESET_TYPE_NOT_SUPPORTED: (UnsupportedError, _UNSUPPORTED),
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: (UnsupportedError, "the driver is too old for this; upgrade it"),
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: (UnsupportedError, "the driver is too old for this; upgrade it"),
    pynvml.NVML_ERROR_DEPRECATED: (UnsupportedError, "the driver is too new for this; upgrade Heliotrope"),
    pynvml.NVML_ERROR_INVALID_ARGUMENT: (DriverError, "the driver does not accept the value"),
    pynvml.NVML_ERROR_INSUFFICIENT_POWER: (DriverError, "the GPU's external power cables are not attached properly"),
    pynvml.NVML_ERROR_TIMEOUT: (DriverError, "the driver took too long; tried again soon"),
    pynvml.NVML_ERROR_IN_USE: (DriverError, "another client uses the GPU in a way that forbids this; tried again soon"),
}


def translate(error: Exception, function: str, device: str | None) -> DriverError:
    """The agent's error for one that nvidia-ml-py raised.

    Args:
        error: an `NVMLError`, or `NVMLLibraryMismatchError`.
        function: that was called.
        device: that it was about, by UUID (or by index, before that is known); None: none.
    """
    place = function if device is None else f"{function} on {device}"
    if not isinstance(error, pynvml.NVMLError):
        return UnsupportedError(f"{place}: nvidia-ml-py and the driver do not match ({error})")
    kind, advice = _KINDS.get(error.value, (DriverError, "an error of the driver's own; tried again soon"))
    return kind(f"{place}: {error} (NVML {error.value}): {advice}")
