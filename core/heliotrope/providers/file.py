"""A CSV or JSON file of intensities in the reader's file system."""

import asyncio
import os
import stat
from pathlib import Path

from heliotrope.api.v1alpha1.carbonsource import File
from heliotrope.api.v1alpha1.regionprofile import RegionProfileSpec
from heliotrope.carbon.series import Series
from heliotrope.errors import InvalidInputError, SignalUnavailableError
from heliotrope.providers.interface import Fetched
from heliotrope.providers.json_rows import read_series
from heliotrope.providers.recorded import Recorded
from heliotrope.providers.table import MAX_BYTES, Columns


class FileProvider:
    """Reads the file in a thread, and again whenever it was replaced or changed.

    While a file system hangs, one thread hangs with it and further calls fail at once.
    """

    def __init__(self, path: Path, spec: RegionProfileSpec, source: File, started_unix_s: float) -> None:
        self._path = path
        self._spec = spec
        self._source = source
        self._started_unix_s = started_unix_s
        self._version: tuple[int, int, int] | None = None
        self._recorded: Recorded | None = None
        self._reading = False

    async def fetch(self, now_unix_s: float) -> Fetched:
        """The value of the row that holds now; the rows after it are the forecast.

        Raises:
            SignalUnavailableError: if the file cannot be read or has no row for now.
        """
        return (await self._read_in_thread()).at(now_unix_s)

    async def history(self, start_unix_s: float, end_unix_s: float) -> Series:
        """The rows whose time is in [start, end), of the file as it was read last.

        Raises:
            SignalUnavailableError: if the file cannot be read or has no row there.
        """
        recorded = self._recorded or await self._read_in_thread()
        return recorded.past(start_unix_s, end_unix_s)

    async def _read_in_thread(self) -> Recorded:
        if self._reading:
            raise SignalUnavailableError(f"{self._path}: is still being read")
        self._reading = True
        return await asyncio.to_thread(self._read_unless_known)

    def _read_unless_known(self) -> Recorded:
        try:
            return self._current()
        finally:
            self._reading = False

    def _current(self) -> Recorded:
        try:
            status = _status(self._path)
            version = (status.st_ino, status.st_mtime_ns, status.st_size)
            if self._recorded is None or version != self._version:
                self._recorded = self._read(status.st_size)
                self._version = version
        except OSError as error:
            raise SignalUnavailableError(f"{self._path}: {error.strerror or error}") from error
        except InvalidInputError as error:
            raise SignalUnavailableError(f"{self._path}: {error}") from error
        return self._recorded

    def _read(self, size: int) -> Recorded:
        if size > MAX_BYTES:
            raise InvalidInputError("", f"is larger than {MAX_BYTES} bytes")
        data = self._path.read_bytes()
        series = read_series(data, Columns.of(self._source), compressed=self._path.suffix == ".gz")
        return Recorded.of(series, self._spec, self._source.replay, self._started_unix_s)


def _status(path: Path) -> os.stat_result:
    """What the file system says of a file; reading anything else might never end."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise InvalidInputError("", "is not a file")
    return status
