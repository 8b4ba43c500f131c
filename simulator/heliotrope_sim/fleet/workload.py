"""Requests as arrays: position i of every column is request i, in order of arrival."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heliotrope.errors import InvalidInputError
from heliotrope.units import nanoseconds_from_seconds
from heliotrope_sim.engine.fixed_point import seconds

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]
Float64 = NDArray[np.float64]

NO_SESSION = -1


@dataclass(frozen=True, slots=True)
class RequestClass:
    """What holds for all requests of a kind."""

    name: str = "default"
    ttft_slo_seconds: float = 3.0
    tpot_slo_seconds: float = 0.1
    allowed_sites: frozenset[str] | None = None
    """Data residency: names of the sites that may serve it; None: all."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Columns of length n; read-only."""

    arrival_ns: Int64
    """At the scheduler `origin`, from the start of the run; never falls."""
    prompt_tokens: Int32
    output_tokens: Int32
    """What is really generated, at least 1."""
    expected_output_tokens: Float64
    """What schedulers believe; NaN: they know nothing. The oracle's are equal to `output_tokens`."""
    origin: Int32
    """Index of the scheduler that it arrives at."""
    class_index: Int32
    session: Int64
    """Equal numbers: turns of one session; `NO_SESSION`: none."""
    block_offsets: Int64
    """Request i's block hashes are `block_hashes[block_offsets[i] : block_offsets[i + 1]]`; shape (n + 1,)."""
    block_hashes: Int64
    """Chained hashes of leading full KV blocks of the engines' block size, prompt first and, where known, output."""
    classes: tuple[RequestClass, ...]
    duration_ns: int
    """How long arrivals go on; energy is reported up to here and up to the end of the last request."""

    def __len__(self) -> int:
        return len(self.arrival_ns)

    @property
    def duration_seconds(self) -> float:
        """How long arrivals go on."""
        return seconds(self.duration_ns)

    def expecting(self, output_tokens: ArrayLike) -> "Workload":
        """The same requests with other beliefs about their output."""
        expected = np.asarray(output_tokens, dtype=np.float64)
        if expected.shape != self.arrival_ns.shape:
            raise InvalidInputError("expected_output_tokens", f"must have {len(self)} entries, has {expected.shape}")
        return replace(self, expected_output_tokens=expected)


def workload(
    arrival_seconds: ArrayLike,
    prompt_tokens: ArrayLike,
    output_tokens: ArrayLike,
    *,
    origin: ArrayLike = 0,
    class_index: ArrayLike = 0,
    classes: Sequence[RequestClass] = (RequestClass(),),
    expected_output_tokens: ArrayLike | None = None,
    session: ArrayLike = NO_SESSION,
    block_hashes: Sequence[Sequence[int] | Int64] | None = None,
    duration_seconds: float | None = None,
    source: str = "workload",
) -> Workload:
    """Requests from plain columns, checked; scalars hold for all.

    Args:
        arrival_seconds: from the start of the run, in order.
        prompt_tokens: at least 1.
        output_tokens: at least 1.
        origin: index of the scheduler it arrives at.
        class_index: into `classes`.
        classes: what holds for the kinds of requests.
        expected_output_tokens: what schedulers believe; by default they know.
        session: equal numbers for turns of one session.
        block_hashes: one sequence per request; None: no prompt shares anything.
        duration_seconds: how long arrivals go on; by default until the last one.
        source: in errors, a file's name for example; rows count from 1.

    Raises:
        InvalidInputError: names source and row of the first value that is missing, negative or out of order.
    """
    arrival = np.asarray(arrival_seconds, dtype=np.float64)
    if arrival.ndim != 1 or not len(arrival):
        raise InvalidInputError(source, "holds no requests")
    n = len(arrival)
    _check(source, "arrival", arrival, ~np.isfinite(arrival) | (arrival < 0.0), "is missing or negative")
    _check(source, "arrival", arrival, np.r_[False, np.diff(arrival) < 0.0], "comes before the row above")
    columns = []
    for name, values in (("prompt_tokens", prompt_tokens), ("output_tokens", output_tokens)):
        column = np.asarray(np.broadcast_to(np.asarray(values, dtype=np.float64), n))
        _check(source, name, column, ~(np.isfinite(column) & (column >= 1.0)), "is missing or below 1")
        columns.append(column.astype(np.int32))
    origins = np.array(np.broadcast_to(np.asarray(origin), n)).astype(np.int32)
    _check(source, "origin", origins, origins < 0, "does not exist")
    kinds = np.array(np.broadcast_to(np.asarray(class_index), n)).astype(np.int32)
    _check(source, "class_index", kinds, (kinds < 0) | (kinds >= len(classes)), "does not exist")
    expected: ArrayLike = columns[1] if expected_output_tokens is None else expected_output_tokens
    offsets, hashes = _flattened(block_hashes, n, source)
    end = float(arrival[-1]) if duration_seconds is None else duration_seconds
    if not end >= arrival[-1]:
        raise InvalidInputError(source, f"its last request arrives at {arrival[-1]} s, after the end at {end} s")
    made = Workload(
        arrival_ns=np.rint(nanoseconds_from_seconds(arrival)).astype(np.int64),
        prompt_tokens=columns[0],
        output_tokens=columns[1],
        expected_output_tokens=np.array(np.broadcast_to(np.asarray(expected, dtype=np.float64), n)),
        origin=origins,
        class_index=kinds,
        session=np.array(np.broadcast_to(np.asarray(session, dtype=np.int64), n)),
        block_offsets=offsets,
        block_hashes=hashes,
        classes=tuple(classes),
        duration_ns=round(nanoseconds_from_seconds(end)),
    )
    for fixed in (made.arrival_ns, made.prompt_tokens, made.output_tokens, made.origin, made.class_index):
        fixed.setflags(write=False)
    return made


def _check(source: str, name: str, column: NDArray[np.generic], wrong: NDArray[np.bool_], problem: str) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InvalidInputError(f"{source}:{row + 1}", f"{name} {column[row]} {problem}")


def _flattened(rows: Sequence[Sequence[int] | Int64] | None, n: int, source: str) -> tuple[Int64, Int64]:
    if rows is None:
        return np.zeros(n + 1, dtype=np.int64), np.zeros(0, dtype=np.int64)
    if len(rows) != n:
        raise InvalidInputError(source, f"has {n} requests and block hashes of {len(rows)}")
    offsets = np.zeros(n + 1, dtype=np.int64)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    flat = [np.asarray(row, dtype=np.int64) for row in rows if len(row)]
    return offsets, np.concatenate(flat) if flat else np.zeros(0, dtype=np.int64)
