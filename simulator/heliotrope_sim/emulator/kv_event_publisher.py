"""Publishes batches of KV events over ZeroMQ as vLLM does: PUB for all, ROUTER for those who missed some."""

import asyncio
import itertools
import logging
from collections import deque

import zmq
import zmq.asyncio

from heliotrope.errors import InvalidInputError
from heliotrope_sim.emulator.kv_config import KvEventsConfig

logger = logging.getLogger(__name__)

SEQUENCE_BYTES = 8
END_OF_REPLAY = (-1).to_bytes(SEQUENCE_BYTES, "big", signed=True)
REQUEST_FRAMES = 3
"""Of a request for a replay: who asks, an empty one, the first sequence number."""


class KvEventPublisher:
    """The sockets of one engine, with the batches that can be replayed.

    A message is topic, sequence number (8 bytes, big-endian, from 0) and payload. Whoever sends a sequence number to
    the replay socket gets the batches from there on that are still kept, each as (empty, topic, number, payload), and
    at last the number -1 with an empty payload. Publishing never waits: a subscriber that does not keep up loses
    batches.
    """

    def __init__(self, config: KvEventsConfig) -> None:
        self._config = config
        self._topic = config.topic.encode()
        self._sequence = itertools.count()
        self._buffer: deque[tuple[int, bytes]] = deque()
        self._context: zmq.asyncio.Context | None = None
        self._pub: zmq.Socket[bytes] | None = None
        self._replay: zmq.asyncio.Socket | None = None
        self._task: asyncio.Task[None] | None = None
        self.endpoint = config.endpoint
        """Where it publishes; with the port once it has started."""
        self.replay_endpoint = config.replay_endpoint
        self.published = 0
        """Batches."""
        self.dropped = 0
        """Batches that some subscriber lost because it did not keep up."""
        self.forgotten = 0
        """Batches that can no longer be replayed."""
        self.buffered_bytes = 0

    def state(self) -> dict[str, str | int | None]:
        """Where it publishes and what it has, as plain data."""
        return {
            "endpoint": self.endpoint,
            "replay_endpoint": self.replay_endpoint,
            "topic": self._config.topic,
            "published": self.published,
            "dropped": self.dropped,
            "replayable": len(self._buffer),
            "replayable_bytes": self.buffered_bytes,
            "forgotten": self.forgotten,
        }

    def source(self) -> dict[str, str | int | bool | None]:
        """What a subscriber needs to know, as vLLM's `KVEventsConfig` has it."""
        return {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": self.endpoint,
            "replay_endpoint": self.replay_endpoint,
            "buffer_steps": self._config.buffer_steps,
            "hwm": self._config.hwm,
            # Of vLLM's queue between scheduler and socket; here there is none.
            "max_queue_size": self._config.hwm,
            "topic": self._config.topic,
        }

    def start(self) -> None:
        """Open the sockets.

        Raises:
            InvalidInputError: if an endpoint cannot be bound or is none.
        """
        self._context = zmq.asyncio.Context()
        try:
            self._open_sockets(self._context)
        except InvalidInputError:
            self._close()
            raise
        if self._replay is not None:
            self._task = asyncio.create_task(self._serve_replays(self._replay), name="kv event replay")

    def _open_sockets(self, context: zmq.asyncio.Context) -> None:
        # A plain socket: a PUB socket never waits, so that there is nothing to await.
        self._pub = zmq.Context(context).socket(zmq.PUB)
        self._pub.set_hwm(self._config.hwm)
        self._pub.setsockopt(zmq.XPUB_NODROP, 1)
        self.endpoint = _open(self._pub, self._config.endpoint, "kv_events.endpoint")
        if self._config.replay_endpoint is not None:
            self._replay = context.socket(zmq.ROUTER)
            # A whole replay is queued at once; a ROUTER that is full would lose the rest of it.
            self._replay.set_hwm(self._config.buffer_steps + 1)
            self.replay_endpoint = _open(self._replay, self._config.replay_endpoint, "kv_events.replay_endpoint")

    async def stop(self) -> None:
        """Close the sockets."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        self._close()

    def _close(self) -> None:
        for socket in (self._pub, self._replay):
            if socket is not None:
                socket.close(linger=0)
        self._pub = self._replay = None
        if self._context is not None:
            self._context.term()
            self._context = None

    def publish(self, payload: bytes) -> None:
        """Send one batch to everyone who listens, and keep it."""
        if self._pub is None:
            return
        number = next(self._sequence)
        self._send(self._pub, (self._topic, number.to_bytes(SEQUENCE_BYTES, "big"), payload))
        self.published += 1
        self._buffer.append((number, payload))
        self.buffered_bytes += len(payload)
        while len(self._buffer) > self._config.buffer_steps or self.buffered_bytes > self._config.buffer_bytes:
            _, old = self._buffer.popleft()
            self.buffered_bytes -= len(old)
            self.forgotten += 1

    def _send(self, pub: zmq.Socket[bytes], frames: tuple[bytes, bytes, bytes]) -> None:
        if _sent(pub, frames):
            return
        # A send rarely looks at what subscribers have read, so that one that keeps up seems full; this does.
        pub.getsockopt(zmq.EVENTS)
        if _sent(pub, frames):
            return
        # Somebody's queue is full; the others get it all the same.
        self.dropped += 1
        pub.setsockopt(zmq.XPUB_NODROP, 0)
        pub.send_multipart(frames, flags=zmq.NOBLOCK)
        pub.setsockopt(zmq.XPUB_NODROP, 1)

    async def _serve_replays(self, replay: zmq.asyncio.Socket) -> None:
        while True:
            frames = await replay.recv_multipart()
            if len(frames) != REQUEST_FRAMES or len(frames[2]) != SEQUENCE_BYTES:
                logger.warning("a request for a replay has no sequence number of %d bytes", SEQUENCE_BYTES)
                continue
            client, _, start = frames
            first = int.from_bytes(start, "big")
            for number, payload in [kept for kept in self._buffer if kept[0] >= first]:
                await replay.send_multipart((client, b"", self._topic, number.to_bytes(SEQUENCE_BYTES, "big"), payload))
            await replay.send_multipart((client, b"", b"", END_OF_REPLAY, b""))


def _sent(pub: zmq.Socket[bytes], frames: tuple[bytes, bytes, bytes]) -> bool:
    """Whether all subscribers had room; else nobody got it."""
    try:
        pub.send_multipart(frames, flags=zmq.NOBLOCK)
    except zmq.Again:
        return False
    return True


def _open(socket: zmq.Socket[bytes] | zmq.asyncio.Socket, endpoint: str, path: str) -> str:
    """Bind or connect; returns the endpoint with the port that it got."""
    try:
        if "*" in endpoint or "::" in endpoint or endpoint.startswith(("ipc://", "inproc://")) or endpoint[-2:] == ":0":
            socket.bind(endpoint)
            return socket.getsockopt_string(zmq.LAST_ENDPOINT)
        socket.connect(endpoint)
    except zmq.ZMQError as error:
        raise InvalidInputError(path, f"{endpoint!r} cannot be opened: {error}") from None
    return endpoint
