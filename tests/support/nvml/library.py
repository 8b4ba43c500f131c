"""The library's functions beside NVML, called from Python."""

import ctypes
import functools
from typing import Final

from tests.support.nvml import build

TEXT: Final = ctypes.c_char_p
UNSIGNED: Final = ctypes.c_uint32
LONG: Final = ctypes.c_uint64


class CProduct(ctypes.Structure):
    """`struct product`."""

    _fields_ = (
        ("name", ctypes.c_char * 64),
        ("memory_bytes", LONG),
        ("lowest_mhz", UNSIGNED),
        ("highest_mhz", UNSIGNED),
        ("step_mhz", UNSIGNED),
        ("memory_clock_count", UNSIGNED),
        ("memory_mhz", UNSIGNED * 8),
        ("unloaded_milliwatts", UNSIGNED),
        ("idle_milliwatts", UNSIGNED),
        ("full_milliwatts", UNSIGNED),
        ("limit_lowest_milliwatts", UNSIGNED),
        ("limit_highest_milliwatts", UNSIGNED),
        ("limit_default_milliwatts", UNSIGNED),
        ("lacks", UNSIGNED),
    )


class CObservation(ctypes.Structure):
    """`struct observation`."""

    _fields_ = (
        ("uuid", ctypes.c_char * 48),
        ("sm_lowest_mhz", UNSIGNED),
        ("sm_highest_mhz", UNSIGNED),
        ("memory_lowest_mhz", UNSIGNED),
        ("memory_highest_mhz", UNSIGNED),
        ("limit_milliwatts", UNSIGNED),
        ("persistence", UNSIGNED),
        ("sm_mhz", UNSIGNED),
        ("memory_mhz", UNSIGNED),
        ("milliwatts", UNSIGNED),
        ("utilization_percent", UNSIGNED),
        ("temperature", UNSIGNED),
        ("engines", UNSIGNED),
        ("reasons", LONG),
        ("millijoules", LONG),
        ("picojoules", LONG),
    )


class CProcess(ctypes.Structure):
    """`struct process`."""

    _fields_ = (
        ("pid", UNSIGNED),
        ("gpu_instance", UNSIGNED),
        ("compute_instance", UNSIGNED),
        ("mps", UNSIGNED),
        ("used_bytes", LONG),
    )


class CPartition(ctypes.Structure):
    """`struct partition`."""

    _fields_ = (("uuid", ctypes.c_char * 48), ("gpu_instance", UNSIGNED), ("compute_instance", UNSIGNED))


class CWrite(ctypes.Structure):
    """`struct write`."""

    _fields_ = (
        ("monotonic_ns", LONG),
        ("realtime_ns", LONG),
        ("pid", UNSIGNED),
        ("gpu", UNSIGNED),
        ("function", UNSIGNED),
        ("result", UNSIGNED),
        ("first", UNSIGNED),
        ("second", UNSIGNED),
    )


_STORE = ctypes.c_void_p
_SIGNATURES: dict[str, tuple[object, tuple[object, ...]]] = {
    "Create": (ctypes.c_int, (TEXT, TEXT)),
    "Open": (_STORE, (TEXT,)),
    "Close": (None, (_STORE,)),
    "Size": (ctypes.c_uint, (ctypes.c_uint,)),
    "Function": (ctypes.c_int, (TEXT,)),
    "FunctionName": (TEXT, (ctypes.c_uint,)),
    "Lock": (ctypes.c_bool, (_STORE,)),
    "Unlock": (None, (_STORE,)),
    "AddGpu": (ctypes.c_int, (_STORE, ctypes.POINTER(CProduct), TEXT)),
    "Count": (ctypes.c_uint, (_STORE,)),
    "Observe": (ctypes.c_int, (_STORE, ctypes.c_uint, ctypes.POINTER(CObservation))),
    "Circumstance": (ctypes.c_int, (_STORE, ctypes.c_uint, ctypes.c_uint, LONG)),
    "Processes": (ctypes.c_int, (_STORE, ctypes.c_uint, ctypes.POINTER(CProcess), ctypes.c_uint)),
    "Partitions": (ctypes.c_int, (_STORE, ctypes.c_uint, ctypes.POINTER(CPartition), ctypes.c_uint)),
    "Foreign": (ctypes.c_int, (_STORE, ctypes.c_uint, ctypes.c_uint, UNSIGNED, UNSIGNED)),
    "AddRule": (
        ctypes.c_int,
        (_STORE, ctypes.c_int, ctypes.c_int, ctypes.c_uint, ctypes.c_uint, ctypes.c_int, ctypes.c_int),
    ),
    "RemoveRule": (None, (_STORE, ctypes.c_uint)),
    "Waiting": (ctypes.c_uint, (_STORE, ctypes.c_uint)),
    "Calls": (LONG, (_STORE, ctypes.c_uint)),
    "WriteCount": (LONG, (_STORE,)),
    "Writes": (ctypes.c_uint, (_STORE, LONG, ctypes.POINTER(CWrite), ctypes.c_uint)),
    "Privileged": (None, (_STORE, ctypes.c_uint)),
    "Reload": (ctypes.c_int, (_STORE,)),
    "Unload": (None, (_STORE,)),
    "StandStill": (ctypes.c_int, (_STORE, ctypes.c_uint)),
    "Advance": (None, (_STORE, LONG)),
}


@functools.cache
def load() -> ctypes.CDLL:
    """The library, with the types of its functions told to ctypes.

    The loader knows a library by its SONAME: once this one is loaded, nvidia-ml-py in the same process finds it too.
    """
    library = ctypes.CDLL(str(build.ensure() / build.LIBRARY))
    if not hasattr(ctypes.CDLL(build.LIBRARY), "heliotropeFakeSize"):
        raise RuntimeError(f"this process has loaded the real {build.LIBRARY}; tests must never touch real GPUs")
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, f"heliotropeFake{name}")
        function.restype = result
        function.argtypes = arguments
    for number, structure in enumerate((CProduct, CObservation, CProcess, CPartition, CWrite)):
        assert library.heliotropeFakeSize(number) == ctypes.sizeof(structure), f"{structure.__name__} is not as in C"
    return library
