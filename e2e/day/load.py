"""A day's requests through the gateway: a curve with its peak in the evening, and a burst."""

import asyncio
import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from heliotrope_sim.demo.client import LoadGenerator, RequestResult
from heliotrope_sim.demo.plan import PlannedRequest


@dataclass(frozen=True, slots=True)
class Shape:
    """Requests per second over the day."""

    seconds: float
    """How long the day lasts on the wall."""
    night: float
    evening: float
    burst_at: float
    burst_seconds: float
    burst: float
    """Requests per second on top."""

    def rate(self, at: float) -> float:
        """At a second of the day."""
        curve = 0.5 - 0.5 * math.cos(2.0 * math.pi * (at / self.seconds - 0.2))
        more = self.burst if self.burst_at <= at < self.burst_at + self.burst_seconds else 0.0
        return self.night + (self.evening - self.night) * curve + more


def planned(shape: Shape, model: str, seed: int) -> list[PlannedRequest]:
    """Poisson arrivals of a day (thinning), with prompts and answers of varied length."""
    rng = random.Random(seed)
    most = shape.evening + shape.burst
    at, requests = 0.0, []
    while (at := at + rng.expovariate(most)) < shape.seconds:
        if rng.random() * most > shape.rate(at):
            continue
        prompt = rng.randint(100, 600)
        requests.append(
            PlannedRequest(
                request_id=f"r{len(requests)}",
                arrival_seconds=at,
                prompt_tokens=prompt,
                output_tokens=rng.randint(40, 120),
                streaming=True,
                model=model,
                messages=({"role": "user", "content": f"{len(requests)} " + "green " * prompt},),
            )
        )
    return requests


async def send(
    url: str, requests: list[PlannedRequest], on_ended: Callable[[RequestResult], None]
) -> list[RequestResult]:
    """Send them all at their times; returns what clients saw."""
    results: list[RequestResult] = []

    def on_result(result: RequestResult) -> None:
        results.append(result)
        on_ended(result)

    generator = LoadGenerator(url, headers_for=lambda _: {}, on_result=on_result)
    await generator.run(requests, asyncio.get_running_loop().time())
    return results
