"""Runs a picker process, of an endpoint or of a region, from its first port to its last request."""

import asyncio
import contextlib
import gc
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import uvloop

from heliotrope_epp.transport.interface import Server

SWITCH_INTERVAL_SECONDS = 0.0005
"""A busy helper thread would otherwise hold the loop for 5 ms at a time."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Where a started picker listens."""

    grpc_port: int
    health_port: int
    metrics_port: int


class Served(Protocol):
    """A picker as its process sees it."""

    first_world: asyncio.Event
    """Set once resources are known."""
    ports: Ports

    async def start(self, stack: contextlib.AsyncExitStack) -> None:
        """Open the ports; `stack` takes everything down again."""
        ...

    async def follow_source(self) -> None:
        """Apply whatever the source of resources publishes, for ever."""
        ...

    def set_serving(self) -> None:
        """Tell gateways that requests are welcome."""
        ...

    async def drain(self) -> None:
        """Send gateways elsewhere while requests still come in."""
        ...


def run(build: Callable[[], Served], announce: Callable[[Ports], None] | None = None) -> None:
    """Run a picker until SIGTERM or SIGINT, then drain it.

    Args:
        build: makes it, on the loop that it will live on.
        announce: called with the ports once requests are taken and resources are known.

    Raises:
        InvalidInputError: if configuration or resources cannot be used.
        OSError: if a port cannot be bound.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_until_signalled(build, announce))


async def _until_signalled(build: Callable[[], Served], announce: Callable[[Ports], None] | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(build(), stop, announce)


async def serve(picker: Served, stop: asyncio.Event, announce: Callable[[Ports], None] | None = None) -> None:
    """Run a picker on the running loop until `stop` is set; `announce` and errors as for `run`."""
    async with contextlib.AsyncExitStack() as stack:
        await picker.start(stack)
        source = asyncio.create_task(picker.follow_source(), name="source of resources")
        stack.push_async_callback(cancelled, source)
        stopped = asyncio.create_task(stop.wait(), name="stop")
        stack.push_async_callback(cancelled, stopped)
        ready = asyncio.create_task(picker.first_world.wait(), name="first world")
        stack.push_async_callback(cancelled, ready)
        await asyncio.wait({source, stopped, ready}, return_when=asyncio.FIRST_COMPLETED)
        if not source.done() and not stop.is_set():
            # What exists by now stays: collections need not look at it again with every request.
            gc.collect()
            gc.freeze()
            picker.set_serving()
            if announce is not None:
                announce(picker.ports)
            await asyncio.wait({source, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if source.done():
            source.result()
            raise RuntimeError("the source of resources ended")
        await picker.drain()


async def cancelled(task: asyncio.Task[Any]) -> None:
    """End a task and wait for its end."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def drained(server: Server, in_flight: int, seconds: float) -> None:
    """Send gateways elsewhere, and wait for them to follow only where something is open."""
    if in_flight or server.stats().open_streams:
        await server.drain(seconds)
    else:
        server.set_serving(False)
