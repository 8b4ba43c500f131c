"""The sockets: order, replay, and what becomes of subscribers that do not keep up."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import zmq
import zmq.asyncio

from heliotrope.errors import InvalidInputError
from heliotrope_sim.emulator.kv_config import KvEventsConfig
from heliotrope_sim.emulator.kv_event_publisher import KvEventPublisher

END = (-1).to_bytes(8, "big", signed=True)


@asynccontextmanager
async def started(config: KvEventsConfig) -> AsyncIterator[KvEventPublisher]:
    publisher = KvEventPublisher(config)
    publisher.start()
    try:
        yield publisher
    finally:
        await publisher.stop()


@asynccontextmanager
async def connected(kind: int, endpoint: str | None, **options: int) -> AsyncIterator[zmq.asyncio.Socket]:
    assert endpoint is not None
    context = zmq.asyncio.Context()
    socket = context.socket(kind)
    for name, value in options.items():
        socket.setsockopt(getattr(zmq, name), value)
    if kind == zmq.SUB:
        socket.subscribe(b"")
    socket.connect(endpoint)
    try:
        yield socket
    finally:
        socket.close(linger=0)
        context.term()


def config(tmp_path: Path, **settings: int | str) -> KvEventsConfig:
    return KvEventsConfig.model_validate(
        {"endpoint": f"ipc://{tmp_path}/pub", "replay_endpoint": f"ipc://{tmp_path}/replay", "topic": "kv@a@m"}
        | settings
    )


async def heard(publisher: KvEventPublisher, sub: zmq.asyncio.Socket) -> None:
    """Publish until the subscription has arrived, then drain what came of that."""
    while not await sub.poll(20):
        publisher.publish(b"?")
    while await sub.poll(20):
        await sub.recv_multipart()


async def replayed(dealer: zmq.asyncio.Socket, start: int) -> list[tuple[bytes, int, bytes]]:
    """What comes of asking, without the end, as (topic, number, payload)."""
    await dealer.send_multipart([b"", start.to_bytes(8, "big")])
    found = []
    while True:
        empty, topic, number, payload = await asyncio.wait_for(dealer.recv_multipart(), 10)
        assert empty == b""
        if number == END:
            assert (topic, payload) == (b"", b"")
            return found
        found.append((topic, int.from_bytes(number, "big"), payload))


async def test_messages_are_topic_number_and_payload_in_order(tmp_path: Path) -> None:
    async with (
        started(config(tmp_path)) as publisher,
        connected(zmq.SUB, publisher.endpoint) as sub,
    ):
        await heard(publisher, sub)
        first = publisher.published
        for i in range(50):
            publisher.publish(b"%d" % i)
        for i in range(50):
            assert await sub.recv_multipart() == [b"kv@a@m", (first + i).to_bytes(8, "big"), b"%d" % i]
    assert publisher.dropped == 0


async def test_a_replay_starts_where_it_is_asked_to_and_ends(tmp_path: Path) -> None:
    async with (
        started(config(tmp_path)) as publisher,
        connected(zmq.DEALER, publisher.replay_endpoint) as dealer,
    ):
        assert await replayed(dealer, 0) == []
        for i in range(3000):
            publisher.publish(b"%d" % i)
        assert await replayed(dealer, 2) == [(b"kv@a@m", i, b"%d" % i) for i in range(2, 3000)]
        assert await replayed(dealer, 3000) == []


async def test_a_request_without_a_number_is_ignored(tmp_path: Path) -> None:
    async with (
        started(config(tmp_path)) as publisher,
        connected(zmq.DEALER, publisher.replay_endpoint) as dealer,
    ):
        publisher.publish(b"x")
        await dealer.send_multipart([b"", b"0"])
        await dealer.send_multipart([b"0"])
        assert await replayed(dealer, 0) == [(b"kv@a@m", 0, b"x")]


@pytest.mark.parametrize(("bound", "kept"), [({"buffer_steps": 3}, 3), ({"buffer_bytes": 45}, 4)])
async def test_what_can_be_replayed_is_bounded_and_the_rest_counted(
    tmp_path: Path, bound: dict[str, int], kept: int
) -> None:
    async with (
        started(config(tmp_path, **bound)) as publisher,
        connected(zmq.DEALER, publisher.replay_endpoint) as dealer,
    ):
        for _ in range(10):
            publisher.publish(b"0123456789")
        assert [number for _, number, _ in await replayed(dealer, 0)] == list(range(10 - kept, 10))
        assert (publisher.forgotten, publisher.buffered_bytes) == (10 - kept, kept * 10)


async def test_a_subscriber_that_does_not_keep_up_loses_batches_which_is_counted_and_others_do_not(
    tmp_path: Path,
) -> None:
    async with (
        started(config(tmp_path, hwm=10)) as publisher,
        connected(zmq.SUB, publisher.endpoint, RCVHWM=1, RCVBUF=1000) as slow,
        connected(zmq.SUB, publisher.endpoint) as quick,
    ):
        await heard(publisher, slow)
        await heard(publisher, quick)
        while await slow.poll(20):
            await slow.recv_multipart()
        first, sent = publisher.published, 0
        while not publisher.dropped:
            publisher.publish(b"x" * 100_000)
            sent += 1
            _, number, _ = await asyncio.wait_for(quick.recv_multipart(), 10)
            assert int.from_bytes(number, "big") == first + sent - 1
            assert sent < 1000
        # It misses some, and sees that by the numbers.
        numbers = []
        while await slow.poll(200):
            numbers.append(int.from_bytes((await slow.recv_multipart())[1], "big"))
        assert numbers == list(range(first, first + len(numbers)))
        assert len(numbers) < sent


async def test_ports_are_chosen_and_given_back() -> None:
    free = KvEventsConfig(endpoint="tcp://127.0.0.1:0", replay_endpoint="tcp://127.0.0.1:0")
    async with started(free) as publisher:
        endpoint = publisher.endpoint
        assert not endpoint.endswith(":0")
        assert publisher.replay_endpoint not in (None, endpoint, "tcp://127.0.0.1:0")
        port = endpoint.rpartition(":")[2]
        taken = KvEventPublisher(KvEventsConfig(endpoint=f"tcp://*:{port}"))
        with pytest.raises(InvalidInputError, match="Address already in use") as error:
            taken.start()
        assert error.value.path == "kv_events.endpoint"
        taken_replay = KvEventPublisher(KvEventsConfig(endpoint="tcp://127.0.0.1:0", replay_endpoint=f"tcp://*:{port}"))
        with pytest.raises(InvalidInputError) as error:
            taken_replay.start()
        assert error.value.path == "kv_events.replay_endpoint"
    async with started(KvEventsConfig(endpoint=f"tcp://*:{port}")):
        pass


async def test_an_endpoint_of_a_collector_is_connected_to(tmp_path: Path) -> None:
    context = zmq.asyncio.Context()
    collector = context.socket(zmq.SUB)
    collector.subscribe(b"")
    port = collector.bind_to_random_port("tcp://127.0.0.1")
    async with started(KvEventsConfig(endpoint=f"tcp://127.0.0.1:{port}")) as publisher:
        await heard(publisher, collector)
        publisher.publish(b"here")
        assert (await asyncio.wait_for(collector.recv_multipart(), 10))[2] == b"here"
    collector.close(linger=0)
    context.term()


async def test_nothing_is_kept_before_it_starts_or_after_it_has_stopped(tmp_path: Path) -> None:
    publisher = KvEventPublisher(config(tmp_path))
    publisher.publish(b"early")
    publisher.start()
    await publisher.stop()
    publisher.publish(b"late")
    assert publisher.published == publisher.buffered_bytes == 0
