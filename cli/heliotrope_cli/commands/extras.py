"""A clear message when a process is asked for whose extra is not installed."""

from collections.abc import Iterator
from contextlib import contextmanager

from heliotrope.errors import HeliotropeError


class ExtraMissingError(HeliotropeError):
    """The packages of an extra are not installed."""


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Wrap the imports of a process.

    Raises:
        ExtraMissingError: if a third-party package is missing; the message says how to install it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ExtraMissingError(
            f"{error.name} is not installed; install it with: pip install 'heliotrope[{extra}]'"
        ) from error
