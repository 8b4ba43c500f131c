"""The HTTP API of Prometheus and of what speaks it (Thanos, Mimir, VictoriaMetrics): instant and range queries."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from math import isfinite, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heliotrope.errors import BadAnswerError, InvalidInputError, NoDataError
from heliotrope.providers.http import Answer, Network, Request, base_url, secret_values, shown

MAX_SERIES = 10_000
MAX_STEPS = 11_000
"""Points of a series that Prometheus gives in one answer."""
_MAX_WARNINGS = 8
_SERVER_TIMEOUT = "15s"


@dataclass(frozen=True, slots=True)
class Access:
    """How a server is allowed to be asked."""

    authorization: str | None = field(default=None, repr=False)
    """Value of the Authorization header, made by `secrets.bearer` or `secrets.basic`."""
    ca_pem: str | None = field(default=None, repr=False)
    """Certificates of the server's authority; None trusts the system's."""


async def open_access() -> Access:
    """Of a server that asks for no credentials."""
    return Access()


@dataclass(frozen=True, slots=True)
class Sample:
    """One series at one time."""

    labels: Mapping[str, str]
    time_unix_s: float
    value: float | None
    """None where Prometheus has NaN or infinity: 0/0 of a rate is unknown, not zero."""


@dataclass(frozen=True, slots=True)
class Vector:
    """Answer to an instant query. No samples: nothing is known, which is not zero."""

    samples: tuple[Sample, ...]
    warnings: tuple[str, ...] = ()
    """What the server warns of; with any, a store may be missing and the answer be partial."""


@dataclass(frozen=True, slots=True, eq=False)
class RangeSeries:
    """One series on the grid that was asked for."""

    labels: Mapping[str, str]
    values: NDArray[np.float64]
    """At start, start + step, …; NaN where there is no sample, or one that is no number."""


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """Answer to a range query."""

    times_unix_s: NDArray[np.float64]
    series: tuple[RangeSeries, ...]
    warnings: tuple[str, ...] = ()
    """As in `Vector`."""


@dataclass(frozen=True, slots=True)
class RawSeries:
    """Samples of one series as they were scraped."""

    labels: Mapping[str, str]
    times_unix_s: tuple[float, ...]
    """Of the scrapes, rising."""
    values: tuple[float, ...]
    """NaN where the sample is no finite number."""


@dataclass(frozen=True, slots=True)
class Raw:
    """Answer to a range selector. No series: nothing is known."""

    series: tuple[RawSeries, ...]
    warnings: tuple[str, ...] = ()
    """As in `Vector`."""


class PrometheusApi:
    """One server. Holds no connection between queries."""

    def __init__(
        self,
        network: Network,
        url: str,
        access: Callable[[], Awaitable[Access]] = open_access,
        *,
        source: str = "prometheus",
    ) -> None:
        """A server's client.

        Args:
            network: limits of time and size.
            url: root of the server, with the prefix of its API if it has one, without `/api/v1`.
            access: called for each query, so that rotated credentials count at once.
            source: how messages call it.

        Raises:
            InvalidInputError: if the address is none.
        """
        self._network = network
        self._urls = {name: base_url(url, f"/api/v1/{name}") for name in ("query", "query_range")}
        self._access = access
        self._source = source

    async def query(self, promql: str, time_unix_s: float | None = None) -> Vector:
        """The value of an expression at a time, at the server's now without one. A scalar has no labels.

        Raises:
            SignalUnavailableError: by its subclasses as `http.Answer.raise_for_refusal` says.
            BadAnswerError: if the server refuses the expression, or its answer is not a vector or a scalar.
        """
        parameters = {"query": promql, "timeout": _SERVER_TIMEOUT}
        if time_unix_s is not None:
            parameters["time"] = f"{time_unix_s:.3f}"
        answer, document = await self._ask("query", parameters)
        try:
            kind, result = document["data"]["resultType"], document["data"]["result"]
            if kind == "scalar":
                samples: tuple[Sample, ...] = (_sample({}, result),)
            elif kind == "vector":
                _check_count(answer, result)
                samples = tuple(_sample(each["metric"], each["value"]) for each in result)
            else:
                raise BadAnswerError(f"{answer.request.shown}: the query gives a {kind}, not a vector or a scalar")
        except (KeyError, TypeError, ValueError, IndexError):
            raise _no_answer(answer) from None
        return Vector(samples, _warnings(answer, document))

    async def samples(self, selector: str, time_unix_s: float) -> Raw:
        """The samples that a range selector (`metric[5m]`) has up to a time, each with the time of its scrape.

        Raises:
            SignalUnavailableError: as for `query`.
        """
        parameters = {"query": selector, "timeout": _SERVER_TIMEOUT, "time": f"{time_unix_s:.3f}"}
        answer, document = await self._ask("query", parameters)
        try:
            if document["data"]["resultType"] != "matrix":
                raise _no_answer(answer)
            result = document["data"]["result"]
            _check_count(answer, result)
            series = tuple(_raw(each["metric"], each["values"]) for each in result)
        except (KeyError, TypeError, ValueError, IndexError):
            raise _no_answer(answer) from None
        return Raw(series, _warnings(answer, document))

    async def query_range(self, promql: str, start_unix_s: float, end_unix_s: float, step_s: float) -> Matrix:
        """An expression at start, start + step, … up to and including end.

        Raises:
            InvalidInputError: if the grid is empty or has more than `MAX_STEPS` points.
            SignalUnavailableError: as for `query`.
        """
        if not step_s > 0 or end_unix_s < start_unix_s:
            raise InvalidInputError("range", "needs a step above zero and an end not before its start")
        steps = int((end_unix_s - start_unix_s) / step_s + 1e-9) + 1
        if steps > MAX_STEPS:
            raise InvalidInputError("range", f"has {steps} steps; Prometheus gives at most {MAX_STEPS}")
        times = start_unix_s + step_s * np.arange(steps, dtype=np.float64)
        parameters = {
            "query": promql,
            "timeout": _SERVER_TIMEOUT,
            "start": f"{start_unix_s:.3f}",
            "end": f"{times[-1]:.3f}",
            "step": f"{step_s:.3f}",
        }
        answer, document = await self._ask("query_range", parameters)
        try:
            if document["data"]["resultType"] != "matrix":
                raise _no_answer(answer)
            result = document["data"]["result"]
            _check_count(answer, result)
            series = tuple(
                RangeSeries(_labels(each["metric"]), _on_grid(each["values"], start_unix_s, step_s, steps))
                for each in result
            )
        except (KeyError, TypeError, ValueError, IndexError):
            raise _no_answer(answer) from None
        return Matrix(times, series, _warnings(answer, document))

    async def _ask(self, endpoint: str, parameters: Mapping[str, str]) -> tuple[Answer, Any]:
        access = await self._access()
        headers = {} if access.authorization is None else {"Authorization": access.authorization}
        request = Request(
            self._source,
            self._urls[endpoint],
            tuple(parameters.items()),
            headers,
            secret_values([access.authorization]),
            access.ca_pem,
        )
        answer = await self._network.get(request)
        if answer.status in (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY):
            raise BadAnswerError(f"{answer.problem()}; check the query")
        if answer.status == HTTPStatus.NOT_FOUND:
            raise NoDataError(f"{answer.problem()}: no Prometheus API is there; set url to the server's root")
        answer.raise_for_refusal()
        document = await answer.json()
        if not isinstance(document, Mapping) or document.get("status") != "success":
            raise _no_answer(answer)
        return answer, document


def _sample(metric: Mapping[str, str], pair: Any) -> Sample:
    time, value = pair
    number = float(value)
    return Sample(_labels(metric), float(time), number if isfinite(number) else None)


def _raw(metric: Any, pairs: Any) -> RawSeries:
    samples = sorted((float(time), float(value)) for time, value in pairs)
    times, values = tuple(time for time, _ in samples), tuple(value for _, value in samples)
    return RawSeries(_labels(metric), times, tuple(value if isfinite(value) else nan for value in values))


def _labels(metric: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in metric.items()}


def _on_grid(pairs: Any, start_unix_s: float, step_s: float, steps: int) -> NDArray[np.float64]:
    values = np.full(steps, nan)
    for time, value in pairs:
        index = round((float(time) - start_unix_s) / step_s)
        number = float(value)
        if not 0 <= index < steps:
            raise ValueError(time)
        values[index] = number if isfinite(number) else nan
    return values


def _check_count(answer: Answer, result: Any) -> None:
    if len(result) > MAX_SERIES:
        raise BadAnswerError(
            f"{answer.request.shown}: the query gives {len(result)} series, more than {MAX_SERIES}; aggregate it"
        )


def _warnings(answer: Answer, document: Mapping[str, Any]) -> tuple[str, ...]:
    """What Prometheus calls warnings; its `infos` are about the query's style and leave nothing out."""
    found = document.get("warnings") or ()
    texts = found if isinstance(found, list) else []
    warnings = [shown(str(text), answer.request) for text in texts[:_MAX_WARNINGS]]
    if document.get("isPartial") is True:  # VictoriaMetrics
        warnings.append("the answer is partial")
    return tuple(warnings)


def _no_answer(answer: Answer) -> BadAnswerError:
    return BadAnswerError(f"{answer.request.shown}: the answer is not one of the Prometheus API; check the address")
