"""The two loads of a calibration, and pages read meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from heliotrope_agent.calibrate.engine import EngineClient
from heliotrope_agent.calibrate.errors import NodeInUseError
from heliotrope_agent.calibrate.pace import Pace
from heliotrope_agent.calibrate.page import Page

PAGE_PERIOD_S = 0.1
"""Engine seconds between two pages."""
LEAST_PAGE_PERIOD_S = 0.004
"""Wall-clock seconds between two pages at least, for emulated engines in a hurry."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A load that has ended."""

    before: Page
    """Read before the first request."""
    pages: tuple[Page, ...]
    """Read from then on, to the end of the last."""


async def decode(
    client: EngineClient,
    pace: Pace,
    *,
    batch: int,
    prompt_tokens: int,
    answer_tokens: int,
    progressed: Callable[[], None],
) -> Ran:
    """So many answers at once, all of the same length, all begun together.

    `progressed` is called after each page, and ends the load with what it raises.

    Raises:
        EngineUnreachableError: if the engine fails.
        NodeInUseError: if somebody else sends it requests.
    """
    prompts = await _prompts(client, batch, prompt_tokens)

    async def load() -> None:
        async with asyncio.TaskGroup() as group:
            for prompt in prompts:
                group.create_task(client.answer(prompt, answer_tokens))

    return await _watched(client, pace, batch, load, progressed)


async def prefill(
    client: EngineClient,
    pace: Pace,
    *,
    in_flight: int,
    prompt_tokens: int,
    prompts: int,
    progressed: Callable[[], None],
) -> Ran:
    """So many prompts with answers of one token, a certain number in flight: the next is sent when one ends.

    `progressed` is called after each page, and ends the load with what it raises.

    Raises:
        EngineUnreachableError: if the engine fails.
        NodeInUseError: if somebody else sends it requests.
    """
    # Made beforehand: what is to be in flight must not wait for our own CPU.
    ready = await _prompts(client, prompts, prompt_tokens)

    async def load() -> None:
        waiting = iter(ready)

        async def worker() -> None:
            for prompt in waiting:
                await client.answer(prompt, 1)

        async with asyncio.TaskGroup() as group:
            for _ in range(in_flight):
                group.create_task(worker())

    return await _watched(client, pace, in_flight, load, progressed)


async def _prompts(client: EngineClient, count: int, tokens: int) -> list[list[int]]:
    """Prompts; others may run in between, such as whoever leaves signs of life."""
    found = []
    for _ in range(count):
        found.append(client.prompt(tokens))
        await asyncio.sleep(0)
    return found


async def _watched(
    client: EngineClient,
    pace: Pace,
    batch: int,
    load: Callable[[], Awaitable[None]],
    progressed: Callable[[], None],
) -> Ran:
    before = await client.page()
    pages: list[Page] = []

    async def watch() -> None:
        while True:
            page = await client.page()
            if page.in_flight > batch:
                raise NodeInUseError(
                    f"the engine has {page.in_flight} requests in flight, {batch} of them ours: take it out of its "
                    "pool or Service, so that nobody else sends it requests"
                )
            pages.append(page)
            progressed()
            await pace.sleep(PAGE_PERIOD_S, LEAST_PAGE_PERIOD_S)

    try:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watch())
            await load()
            watching.cancel()
    except BaseExceptionGroup as errors:
        raise _first(errors) from errors
    pages.append(await client.page())
    return Ran(before, tuple(pages))


def _first(errors: BaseExceptionGroup) -> BaseException:
    """The error that a person should see of several that ended together."""
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
