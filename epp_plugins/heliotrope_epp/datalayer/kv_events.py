"""Follows engines' KV events over ZeroMQ: one task per endpoint, each at its own pace.

Whoever misses a message no longer knows what that engine caches: where the engine replays, what was missed is asked
for, else the endpoint's blocks are forgotten. A number that falls means another engine, and is treated alike. So is a
connection that was lost: behind it may be an engine that has started anew and whose numbers go on by chance where the
old one's ended.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

import zmq
import zmq.asyncio

from heliotrope.errors import InvalidInputError
from heliotrope_epp.datalayer.backoff import Backoff
from heliotrope_epp.datalayer.endpoint import Endpoint
from heliotrope_epp.datalayer.kv_event_wire import SEQUENCE_BYTES, Event, decoded
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.datalayer.tasks import KeyedTasks

_log = logging.getLogger(__name__)

COUNTED = ("messages", "gaps", "replays", "failed_replays", "resets", "refused", "failures")
"""What a subscriber counts: messages; of them those after a gap; replays that came and that did not; endpoints that had
to be forgotten; messages that were none; and failures of sockets."""

_END_OF_REPLAY = (1 << 64) - 1
"""-1 in 8 bytes: what ends a replay."""
_BATCHES_PER_TURN = 64
"""After so many without a pause others get their turn."""


class Sink(Protocol):
    """What is done with events. Called on the loop's thread; must not block."""

    def kv_events(self, endpoint: str, events: list[Event]) -> None:
        """One batch, in order."""
        ...

    def kv_lost(self, endpoint: str) -> None:
        """Events were missed: what is known of the endpoint's blocks no longer holds."""
        ...


@dataclass(frozen=True, slots=True)
class KvEventSettings:
    """Where and how engines are listened to."""

    port: int = 5557
    """Where every endpoint's address publishes."""
    replay_port: int | None = None
    """Where missed messages are asked for; None: nowhere."""
    topic_filter: str = "kv@"
    """Only topics that begin so."""
    queue_messages: int = 10_000
    """Waiting ones per endpoint; ZeroMQ drops what comes after, which shows as a gap."""
    replay_timeout_s: float = 5.0
    first_pause_s: float = 0.5
    longest_pause_s: float = 30.0


class KvEventSubscriber:
    """A listener of the endpoint store. Use as a context manager.

    `port_of` gives the ports of an endpoint that has its own: where it publishes, and where it replays.
    """

    def __init__(
        self,
        settings: KvEventSettings,
        sink: Sink,
        *,
        port_of: Callable[[Endpoint], tuple[int, int | None] | None] = lambda _endpoint: None,
        random: Random | None = None,
    ) -> None:
        self._settings = settings
        self._sink = sink
        self._port_of = port_of
        self._random = random or Random()
        self._context: zmq.asyncio.Context | None = None
        self._tasks = KeyedTasks()
        self.counts: Counter[str] = Counter()
        """By `COUNTED`."""

    async def __aenter__(self) -> "KvEventSubscriber":
        self._context = zmq.asyncio.Context()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._tasks.close()
        if self._context is not None:
            self._context.destroy(linger=0)
            self._context = None

    def added(self, state: EndpointState) -> None:
        """Listen to an endpoint."""
        if self._context is None:
            raise RuntimeError("the subscriber is closed")
        key = state.endpoint.key
        self._tasks.start(key, self._follow(state.endpoint, self._context), f"KV events of {key}")

    def removed(self, key: str) -> None:
        """Stop to listen."""
        self._tasks.stop(key)

    def cache_lost(self, key: str) -> None:
        """The engine restarted: its numbers will tell."""

    def following(self) -> int:
        """Endpoints that are listened to."""
        return len(self._tasks)

    async def _follow(self, endpoint: Endpoint, context: zmq.asyncio.Context) -> None:
        backoff = Backoff(self._settings.first_pause_s, self._settings.longest_pause_s, self._random)
        while True:
            try:
                await self._listen(endpoint, context, backoff)
            except zmq.ZMQError as error:
                self.counts["failures"] += 1
                if backoff.failures == 0:
                    _log.warning("KV events of %s: %s", endpoint.key, error)
                await asyncio.sleep(backoff.failed())

    async def _listen(self, endpoint: Endpoint, context: zmq.asyncio.Context, backoff: Backoff) -> None:
        settings = self._settings
        port, replay_port = self._port_of(endpoint) or (settings.port, settings.replay_port)
        socket = context.socket(zmq.SUB)
        disconnections = _disconnections(socket, context)
        try:
            socket.set_hwm(settings.queue_messages)
            socket.setsockopt(zmq.IPV6, 1)
            socket.subscribe(settings.topic_filter)
            socket.connect(_address(endpoint, port))
            expected: int | None = None
            received = 0
            while True:
                frames = await socket.recv_multipart()
                backoff.succeeded()
                if _happened(disconnections) and expected is not None:
                    self._lost(endpoint, "resets")
                    expected = None
                expected = await self._message(endpoint, frames, expected, replay_port, context)
                received += 1
                if received % _BATCHES_PER_TURN == 0:
                    await asyncio.sleep(0)
        finally:
            socket.disable_monitor()
            disconnections.close(linger=0)
            socket.close(linger=0)

    async def _message(
        self,
        endpoint: Endpoint,
        frames: list[bytes],
        expected: int | None,
        replay_port: int | None,
        context: zmq.asyncio.Context,
    ) -> int | None:
        """Take one message; the number that the next one must have."""
        self.counts["messages"] += 1
        try:
            number, events = decoded(frames)
        except InvalidInputError as error:
            self.counts["refused"] += 1
            _log.debug("KV events of %s: %s", endpoint.key, error)
            return expected
        if expected is not None and number < expected:
            self._lost(endpoint, "resets")  # another engine, or the same one from its start
            expected = None
        first = 0 if expected is None else expected
        if number > first:
            # What was published before this picker listened is missed like anything else.
            self.counts["gaps"] += expected is not None
            if not await self._replayed(endpoint, first, number, replay_port, context) and expected is not None:
                self._lost(endpoint, "resets")
                # Engines do not tell again what they still hold: whatever they replay is better than nothing.
                await self._replayed(endpoint, 0, number, replay_port, context)
        self._sink.kv_events(endpoint.key, events)
        return number + 1

    async def _replayed(
        self, endpoint: Endpoint, first: int, until: int, replay_port: int | None, context: zmq.asyncio.Context
    ) -> bool:
        """Whether the messages from `first` to before `until` came again, all of them."""
        if replay_port is None:
            return False
        batches: dict[int, list[Event]] = {}
        socket = context.socket(zmq.DEALER)
        try:
            socket.set_hwm(self._settings.queue_messages)
            socket.setsockopt(zmq.IPV6, 1)
            socket.connect(_address(endpoint, replay_port))
            async with asyncio.timeout(self._settings.replay_timeout_s):
                await socket.send_multipart((b"", first.to_bytes(SEQUENCE_BYTES, "big")))
                while len(batches) < self._settings.queue_messages:
                    _, *frames = await socket.recv_multipart()
                    number = int.from_bytes(frames[-2], "big")
                    if number == _END_OF_REPLAY or not frames[-1]:
                        break
                    batches[number] = decoded((b"", *frames[-2:]))[1]
        except (TimeoutError, zmq.ZMQError, InvalidInputError, IndexError) as error:
            self.counts["failed_replays"] += 1
            _log.debug("replay of KV events of %s: %s", endpoint.key, error)
            return False
        finally:
            socket.close(linger=0)
        self.counts["replays"] += 1
        complete = all(number in batches for number in range(first, until))
        if not complete and first > 0:
            return False
        for number in range(first, until):
            self._sink.kv_events(endpoint.key, batches.get(number, []))
        return complete

    def _lost(self, endpoint: Endpoint, why: str) -> None:
        self.counts[why] += 1
        self._sink.kv_lost(endpoint.key)


def _disconnections(socket: zmq.asyncio.Socket, context: zmq.asyncio.Context) -> zmq.SyncSocket:
    """Where a socket tells that it has lost its connection: always before it gives what came over the next one."""
    address = f"inproc://disconnections-{socket.underlying}"
    socket.monitor(address, zmq.EVENT_DISCONNECTED)
    told: zmq.SyncSocket = zmq.Context.shadow(context.underlying).socket(zmq.PAIR)
    told.connect(address)
    return told


def _happened(told: zmq.SyncSocket) -> bool:
    """Whether anything was told since the last call."""
    happened = False
    while told.poll(0):
        told.recv_multipart(zmq.NOBLOCK)
        happened = True
    return happened


def _address(endpoint: Endpoint, port: int) -> str:
    host = f"[{endpoint.address}]" if ":" in endpoint.address else endpoint.address
    return f"tcp://{host}:{port}"
