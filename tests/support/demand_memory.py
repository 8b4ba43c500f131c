"""A server of Prometheus' HTTP API that remembers the demand counters of one pool's pickers, and scrapes engines."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.upstream import Asked, Reply, of_json

from heliotrope_operator.planning.prometheus import TOTALS
from heliotrope_operator.planning.scraped import (
    FIRST_TOKENS,
    KV_USAGE,
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    RUNNING,
    WAITING,
    WINDOW_S,
)

DAY_BINS = 288
PROMPT, OUTPUT = 500, 200
"""Tokens of a request."""


@dataclass
class Engine:
    """A pod as it is scraped."""

    rate: float = 1.0
    """Requests per second, since ever."""
    waiting: float | str = 0.0
    interval_s: float = 15.0
    age_s: float = 5.0
    """Of the newest sample."""
    young_s: float = WINDOW_S
    """How far back its samples go."""
    labels: dict[str, str] = field(default_factory=dict)
    """Beside its own."""
    without: tuple[str, ...] = ()
    """Names that it does not show."""

    def series(self, pod: str, now_s: float) -> list[dict[str, Any]]:
        """As a range selector gives them; the counters grow from a time long ago."""
        newest = now_s - self.age_s
        times = [newest - n * self.interval_s for n in range(int(self.young_s / self.interval_s))][::-1]
        since = now_s - 10_000.0
        values: dict[str, Callable[[float], float | str]] = {
            FIRST_TOKENS: lambda t: self.rate * (t - since),
            PROMPT_TOKENS: lambda t: PROMPT * self.rate * (t - since),
            OUTPUT_TOKENS: lambda t: OUTPUT * self.rate * (t - since),
            WAITING: lambda _: self.waiting,
            RUNNING: lambda _: 2.0,
            KV_USAGE: lambda _: 0.1,
        }
        labels = {"namespace": "ns", "pod": pod, "instance": f"{pod}:8000", "engine": "0", **self.labels}
        return [
            {"metric": {"__name__": name, **labels}, "values": [[t, str(of(t))] for t in times]}
            for name, of in values.items()
            if name not in self.without and times
        ]


class Memory:
    """A server with a day of 2 requests per second of 500 and 200 tokens, and the same now."""

    def __init__(self, model: str) -> None:
        self._model = model
        self.rate: float | str = 2.0
        self.up: list[str] = ["1"]
        self.held = "0"
        self.warnings: list[str] = []
        self.gaps: set[int] = set()
        """Numbers of bins without a value."""
        self.status = 200
        self.engines: dict[str, Engine] = {}
        """By pod."""
        self.scraped: Callable[[], dict[str, Engine]] = lambda: self.engines
        """For those that come and go by themselves."""
        self.doubled: list[tuple[str, Engine]] = []
        """The same ones once more, as another job scrapes them."""
        self.clock: Callable[[], float] = time.time

    def __call__(self, asked: Asked) -> Reply:
        if self.status != 200:
            return of_json({"status": "error", "error": "no"}, self.status)
        query = asked.one("query")
        assert query is not None
        tokens = next((many for total, many in zip(TOTALS, (1, 500, 200), strict=True) if total in query), None)
        if asked.path.endswith("query_range"):
            assert tokens is not None
            start, end, step = (float(asked.one(name) or "") for name in ("start", "end", "step"))
            newest = int(end // step)
            points = [
                [number * step, str(2.0 * step * tokens)]
                for number in range(max(newest - DAY_BINS, int(start // step)), newest + 1)
                if number - 1 not in self.gaps
            ]
            return self._answer("matrix", [{"metric": {"model": self._model}, "values": points}])
        if query == "time()":
            return self._answer("scalar", [self.clock(), str(self.clock())])
        if query.startswith("{__name__=~"):
            now_s = float(asked.one("time") or "")
            found = [*self.scraped().items(), *self.doubled]
            return self._answer("matrix", [each for pod, engine in found for each in engine.series(pod, now_s)])
        if "up{" in query:
            return self._answer("vector", [{"metric": {}, "value": [1.0, value]} for value in self.up])
        if tokens is None:
            return self._answer("vector", [{"metric": {"model": self._model}, "value": [1.0, self.held]}])
        value = self.rate if isinstance(self.rate, str) else str(self.rate * tokens)
        return self._answer("vector", [{"metric": {"model": self._model}, "value": [1.0, value]}])

    def _answer(self, kind: str, result: Any) -> Reply:
        return of_json({"status": "success", "data": {"resultType": kind, "result": result}, "warnings": self.warnings})
