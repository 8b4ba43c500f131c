"""A server of Prometheus' HTTP API that remembers the demand counters of one pool's pickers."""

from typing import Any

from tests.support.upstream import Asked, Reply, of_json

from heliotrope_operator.planning.prometheus import TOTALS

DAY_BINS = 288


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
        if "up{" in query:
            return self._answer("vector", [{"metric": {}, "value": [1.0, value]} for value in self.up])
        if tokens is None:
            return self._answer("vector", [{"metric": {"model": self._model}, "value": [1.0, self.held]}])
        value = self.rate if isinstance(self.rate, str) else str(self.rate * tokens)
        return self._answer("vector", [{"metric": {"model": self._model}, "value": [1.0, value]}])

    def _answer(self, kind: str, result: Any) -> Reply:
        return of_json({"status": "success", "data": {"resultType": kind, "result": result}, "warnings": self.warnings})
