"""Runs parts of studies on a Dask cluster that the user has; imported only where one is asked for."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any

from distributed import Client

from heliotrope.errors import HeliotropeError, InvalidInputError
from heliotrope_sim.reproduce.naming import identity

TIMEOUT_SECONDS = 10.0
SCHEMES = ("tcp://", "tls://", "ws://", "wss://", "ucx://")
COMPARED = ("heliotrope", "code", "data", "python", "numba", "numpy", "highspy", "lightgbm", "pydantic")


class ClusterUnreachableError(HeliotropeError):
    """No scheduler answers at the address, or it has no workers."""


class ForeignWorkerError(HeliotropeError):
    """A worker has another version of Heliotrope, of its data, or of what results depend on."""


class _Machines(Executor):
    """The cluster as an executor; every part checks first that its worker is the client's like."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._inner = client.get_executor(pure=False)

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self._inner.submit(_checked, dict(identity()), function, args, kwargs)  # type: ignore[no-any-return]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._inner.shutdown(wait=wait and not cancel_futures)


@contextmanager
def connected(address: str, timeout_seconds: float = TIMEOUT_SECONDS) -> Iterator[Executor]:
    """The cluster for the time of a block. Left early, what was not finished is cancelled there.

    Args:
        address: of its scheduler, `tcp://scheduler:8786` for example.
        timeout_seconds: for the connection, and for the first worker.

    Raises:
        InvalidInputError: if the address is none.
        ClusterUnreachableError: if nobody answers there in time, or there are no workers.
        ForeignWorkerError: if a worker could give other results than this process.
    """
    if not address.startswith(SCHEMES):
        raise InvalidInputError(
            "--cluster", f"{address!r} must begin with {', '.join(SCHEMES[:2])} or another of Dask's"
        )
    try:
        client = Client(address, timeout=timeout_seconds, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise ClusterUnreachableError(
            f"no Dask scheduler answers at {address} within {timeout_seconds:g} s; start one with "
            f"`dask scheduler`, and workers with `dask worker {address}`"
        ) from error
    try:
        _check(client, address, timeout_seconds)
        machines = _Machines(client)
        try:
            yield machines
        finally:
            machines.shutdown(wait=False)
    finally:
        client.close(timeout=timeout_seconds)


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """What differs, in words; nothing: they are alike."""
    return ", ".join(f"{k} {theirs.get(k, 'none')} (here {ours[k]})" for k in COMPARED if theirs.get(k) != ours[k])


def _check(client: Client, address: str, timeout_seconds: float) -> None:
    try:
        client.wait_for_workers(1, timeout=timeout_seconds)
    except (TimeoutError, OSError) as error:
        raise ClusterUnreachableError(
            f"{address} has had no workers for {timeout_seconds:g} s; start some with `dask worker {address}`"
        ) from error
    try:
        found = client.run(_identity)
    except Exception as error:
        raise ForeignWorkerError(
            f"workers of {address} cannot import Heliotrope ({type(error).__name__}); install heliotrope[cluster] "
            "there in the version of this machine"
        ) from error
    ours = identity()
    for worker, theirs in found.items():
        words = differences(ours, theirs)
        if words:
            raise ForeignWorkerError(f"worker {worker} differs in {words}; install the same version everywhere")


def _identity() -> dict[str, str]:
    return dict(identity())


def _checked(ours: Mapping[str, str], function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Workers may come while a study runs: each part looks again."""
    words = differences(ours, identity())
    if words:
        raise ForeignWorkerError(f"a worker that joined differs in {words}; install the same version everywhere")
    return function(*args, **kwargs)
