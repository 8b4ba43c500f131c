"""A call to the API server that is given up leaves no socket behind, at whatever point it is given up."""

import asyncio
import gc
import socket
import ssl
import threading
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

import pytest

from heliotrope_epp.datalayer.kubernetes.connection import Connection
from heliotrope_epp.datalayer.kubernetes.credentials import Access, Credentials
from heliotrope_epp.datalayer.kubernetes.errors import UnreachableError
from heliotrope_epp.transport.certificates import Pair, SelfSigned, self_signed

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = b'{"type":"BOOKMARK","object":{}}\n'
STEPS = 60  # more than a call makes until its answer has begun


class Given(Credentials):
    """Credentials that need no file."""

    def __init__(self, access: Access) -> None:
        self._given = access

    async def load(self) -> Access:
        return self._given


class Frozen:
    """A TLS server that answers with some bytes, then neither reads nor closes: not even a farewell comes back."""

    def __init__(self, pair: Pair, folder: Path, answer: bytes) -> None:
        for name, data in (("crt", pair.certificate), ("key", pair.key)):
            (folder / f"tls.{name}").write_bytes(data)
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        self._answer = answer
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._held: list[socket.socket] = []
        trusted = ssl.create_default_context(cadata=pair.certificate.decode())
        port = self._listening.getsockname()[1]
        self.access = Access(f"https://127.0.0.1:{port}", trusted, None, None, None)

    def serve(self) -> None:
        while True:
            try:
                taken, _ = self._listening.accept()
            except OSError:
                return
            self._held.append(taken)
            try:
                taken.settimeout(5.0)
                spoken = self._tls.wrap_socket(taken, server_side=True)
                self._held[-1] = spoken
                if spoken.recv(4096):
                    spoken.sendall(self._answer)
            except OSError:
                continue  # given up in the middle of its handshake

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def release(self) -> None:
        for each in self._held:
            each.close()


@contextmanager
def frozen(folder: Path, answer: bytes) -> Iterator[Frozen]:
    server = Frozen(self_signed(SelfSigned(("127.0.0.1",))), folder, answer)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join()
        server.release()


@contextmanager
def nothing_left_open() -> Iterator[None]:
    gc.collect()  # what other tests left is not ours
    with warnings.catch_warnings(record=True) as left:
        warnings.simplefilter("always", ResourceWarning)
        yield
        gc.collect()
    assert [str(each.message) for each in left] == []


async def listed(access: Access) -> None:
    await Connection(credentials=Given(access)).get("/api/v1/pods", params={}, timeout_s=30.0)


async def watched(access: Access) -> None:
    connection = Connection(credentials=Given(access))
    async with aclosing(connection.watch("/api/v1/pods", params={"resourceVersion": "1"}, silence_s=30.0)) as events:
        async for _ in events:
            pass


CALLS = {"list": listed, "watch": watched}


@pytest.mark.parametrize("answer", [b"", HEAD, HEAD + f"{len(EVENT):x}\r\n".encode() + EVENT + b"\r\n"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call_that_is_cancelled_at_any_step_closes_its_socket(
    call: Callable[[Access], Awaitable[None]], answer: bytes, tmp_path: Path
) -> None:
    async def cancelled_after(steps: int, seconds: float) -> None:
        task = asyncio.create_task(call(server.access))
        for _ in range(steps):
            await asyncio.sleep(0)
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with frozen(tmp_path, answer) as server, nothing_left_open():
        for steps in range(STEPS):
            asyncio.run(cancelled_after(steps, 0.0))
        for milliseconds in range(2, 40, 2):
            asyncio.run(cancelled_after(0, milliseconds / 1000))


def test_a_call_that_takes_too_long_closes_its_socket(tmp_path: Path) -> None:
    async def timed_out() -> None:
        connection = Connection(credentials=Given(server.access))
        with pytest.raises(UnreachableError):
            await connection.get("/api/v1/pods", params={}, timeout_s=0.2)

    with frozen(tmp_path, HEAD) as server, nothing_left_open():
        asyncio.run(timed_out())
