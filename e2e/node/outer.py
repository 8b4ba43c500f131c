"""Keeps a node alive for whoever started it, and removes it without a trace when they end, however they end.

    python -m e2e.node.outer FOLDER    # commands on stdin: `start`, `stop`; its end is the node's

`FOLDER/state` tells how it is: `ready N`, `stopped N` or `failed WHY`, N counting the starts. The API server is reached
at the port in `FOLDER/port` of the loopback interface, the same through all starts.
"""

import asyncio
import contextlib
import ctypes
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from e2e.controlplane import build
from e2e.node.inner import API_SERVICE

CLONE_NEWNET = 0x4000_0000
LOOK_SECONDS = 0.05
START_SECONDS = 180.0
STOP_SECONDS = 30.0
COPY_BYTES = 65_536


def locks() -> Path:
    """Folder with one locked file per running node."""
    return build.cache() / "nodes"


def sweep() -> None:
    """Remove what nodes left whose keeper was killed as well."""
    locks().mkdir(parents=True, exist_ok=True)
    for lock in list(locks().iterdir()):
        if lock.suffix == ".new":
            continue
        with contextlib.suppress(FileNotFoundError, BlockingIOError), lock.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            folder = file.read().strip()
            remove_cgroups(lock.name)
            if folder:
                shutil.rmtree(folder, ignore_errors=True)
            lock.unlink(missing_ok=True)


def cgroups(name: str) -> list[Path]:
    """The node's control groups, one per hierarchy."""
    root = Path("/sys/fs/cgroup")
    return [path for path in (root / name, *root.glob(f"*/{name}")) if path.is_dir()]


def remove_cgroups(name: str) -> None:
    """Remove the control groups of a node whose processes have ended or are about to.

    Raises:
        TimeoutError: if a process is still in one of them.
    """
    deadline = time.monotonic() + STOP_SECONDS
    while left := cgroups(name):
        for top in left:
            for path, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):
                    Path(path).rmdir()
        if time.monotonic() > deadline:
            raise TimeoutError(f"control groups stay: {', '.join(map(str, cgroups(name)))}")
        if cgroups(name):
            time.sleep(LOOK_SECONDS)


class Keeper:
    """One node, its folder and its control groups."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cgroup: str = json.loads((folder / "settings.json").read_text())["cgroup"]
        self._starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        (folder / "port").write_text(f"{self._listener.getsockname()[1]}\n")

    def start(self) -> None:
        """Bring the node up; the state tells whether that succeeded."""
        self._starts += 1
        for name in ("ready", "failed"):
            (self._folder / name).unlink(missing_ok=True)
        inner = [sys.executable, "-I", "-S", str(Path(__file__).with_name("inner.py")), str(self._folder)]
        with (self._folder / "inner.log").open("ab") as log:
            self._process = subprocess.Popen(
                # Should this process be killed, the kernel kills unshare, then the namespace's first process, then all.
                [
                    "setpriv",
                    "--pdeathsig",
                    "KILL",
                    "unshare",
                    "--net",
                    "--mount",
                    "--pid",
                    "--fork",
                    "--kill-child",
                    "--mount-proc",
                    *inner,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS
        while not (self._folder / "ready").exists():
            if self._process.poll() is not None or time.monotonic() > deadline or ended(0):
                self._failed()
                return
            time.sleep(LOOK_SECONDS)
        threading.Thread(target=self._forward, args=(self._process.pid,), daemon=True, name="forward").start()
        self._tell(f"ready {self._starts}")

    def stop(self) -> None:
        """Kill everything at once, as a loss of power does; the folder stays."""
        if self._process is not None:
            for pid in children(self._process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            try:
                self._process.wait(STOP_SECONDS)  # until every process of the namespace has ended
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        remove_cgroups(self._cgroup)
        self._tell(f"stopped {self._starts}")

    def keep(self) -> None:
        """Obey commands until stdin ends."""
        while True:
            if self._process is not None and self._process.poll() is not None:
                self._failed()
                self._process = None
            if not select.select([sys.stdin], [], [], 4 * LOOK_SECONDS)[0]:
                continue
            command = sys.stdin.readline().strip()
            if command == "stop":
                self.stop()
            elif command == "start":
                self.start()
            elif not command:
                return

    def _failed(self) -> None:
        why = self._folder / "failed"
        log = (self._folder / "inner.log").read_text(errors="replace")[-1_000:]
        self._tell(f"failed {why.read_text() if why.exists() else 'the node ended by itself'}\n{log}")

    def _tell(self, state: str) -> None:
        new = self._folder / "state.new"
        new.write_text(state)
        new.rename(self._folder / "state")

    def _forward(self, pid: int) -> None:
        """Carry connections of the loopback interface to the API server, until the node's process ends.

        Sockets belong to the network in which they were made, and a thread can be in another one than its process.
        """
        libc = ctypes.CDLL(None, use_errno=True)
        with open(f"/proc/{pid}/ns/net") as namespace:  # noqa: PTH123 (a file descriptor is wanted)
            if libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "cannot enter the node's network")
        asyncio.run(self._serve(pid))

    async def _serve(self, pid: int) -> None:
        server = await asyncio.start_server(self._connection, sock=self._listener.dup())
        while _alive(pid):
            await asyncio.sleep(LOOK_SECONDS)
        server.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inside_reader, inside_writer = await asyncio.open_connection(API_SERVICE, 443)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, inside_writer), _copy(inside_reader, writer))


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(COPY_BYTES):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()


def children(pid: int) -> list[int]:
    """Processes that a process has started."""
    return _by_parent().get(pid, [])


def descendants(pid: int) -> list[int]:
    """Processes that a process has started, and those that they have."""
    by_parent = _by_parent()
    found = list(by_parent.get(pid, []))
    for each in found:  # it grows
        found += by_parent.get(each, [])
    return found


def _by_parent() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            found.setdefault(parent, []).append(int(path.parent.name))
    return found


def ended(seconds: float) -> bool:
    """Whether whoever writes to stdin has ended."""
    poll = select.poll()
    poll.register(sys.stdin, select.POLLHUP)
    return any(event & select.POLLHUP for _, event in poll.poll(seconds * 1_000))


def main() -> int:
    """Keep the node; remove everything at the end."""
    folder = Path(sys.argv[1])
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the end of stdin is the order to end
    sweep()
    keeper = Keeper(folder)
    name = json.loads((folder / "settings.json").read_text())["cgroup"]
    lock = locks() / name
    new = lock.with_suffix(".new")
    with new.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(str(folder))
        file.flush()
        new.rename(lock)  # locked from its first moment, so that nobody sweeps it
        try:
            keeper.keep()
        finally:
            keeper.stop()
            shutil.rmtree(folder, ignore_errors=True)
            lock.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
