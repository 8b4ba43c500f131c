"""Loops over many rows as machine code, where numba is installed; as Python, much slower but the same, where it is not.

Modules that use this are imported when the first call needs them: numba takes a second and about 120 MB.
"""

from collections.abc import Callable
from typing import TypeVar

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function, signature: str | None = None) -> Function:
    """Decorates a function of numbers and numpy arrays; compiled at its first call, or at once for a signature.

    Machine code is kept in numba's cache folder where one can be written, else compiled again in every process. What is
    kept is known by the function's own file: after a change to a function that loops of other files call, delete it
    (`*.nbi` and `*.nbc` in `__pycache__`).
    """
    return _machine_code(function, signature, {})


def inner(function: Function) -> Function:
    """Decorates like `compiled` a function that only compiled loops call; Python must not where numba is installed.

    It is built sooner, without the glue that calls from Python take: what a first run in a fresh checkout waits for.
    """
    return _machine_code(function, None, {"no_cpython_wrapper": True, "no_cfunc_wrapper": True})


def _machine_code(function: Function, signature: str | None, options: dict[str, bool]) -> Function:
    try:
        from numba import njit
    except ImportError:
        return function
    try:
        machine_code = njit(signature, cache=True, error_model="numpy", **options)(function)
    except (RuntimeError, OSError):  # no folder for the cache, or one that cannot be written
        machine_code = njit(signature, error_model="numpy", **options)(function)
    return machine_code  # type: ignore[no-any-return]
