"""A run as a trace in Chrome's JSON format, which Perfetto and chrome://tracing open.

Sites are processes. A request is one bar in its site's row of requests, split into window, way and queue, prefill and
decode; counters show how many run and wait per site. Bounded: requests are left out evenly where there are too many.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heliotrope.errors import InvalidInputError
from heliotrope.units import nanoseconds_from_seconds
from heliotrope_sim.fleet.results import Results

NANOSECONDS_PER_MICROSECOND = 1_000.0
COUNTER_POINTS = 500


def write(
    results: Results,
    path: Path,
    *,
    start_seconds: float = 0.0,
    end_seconds: float | None = None,
    most_requests: int = 20_000,
) -> int:
    """Write a range of time of a run.

    Args:
        results: of the run.
        path: of the file.
        start_seconds: since the start of the run.
        end_seconds: None: its end.
        most_requests: where more were in flight in the range, every so-and-so-many-th is shown, and the file says so.

    Returns:
        How many requests it shows.

    Raises:
        InvalidInputError: if the range is empty.
    """
    start_ns = round(nanoseconds_from_seconds(start_seconds))
    end_ns = int(results.interval_end_ns[-1])
    if end_seconds is not None:
        end_ns = min(end_ns, round(nanoseconds_from_seconds(end_seconds)))
    if not start_ns < end_ns:
        raise InvalidInputError("end_seconds", f"{end_seconds} is not after {start_seconds}")
    inside = results.served & (results.finished_ns > start_ns) & (results.workload.arrival_ns < end_ns)
    chosen = np.flatnonzero(inside)
    every = -(-len(chosen) // most_requests) if len(chosen) else 1
    shown = chosen[::every]
    events = _names(results)
    for request in shown.tolist():
        events += _bars(results, request)
    events += _counters(results, start_ns, end_ns)
    document = {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"requests": len(chosen), "shown": len(shown), "every": every},
    }
    path.write_text(json.dumps(document, separators=(",", ":")), encoding="utf-8")
    return len(shown)


def _names(results: Results) -> list[dict[str, Any]]:
    names = [(i + 1, site.name) for i, site in enumerate(results.topology.sites)]
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}} for pid, name in names
    ]
    first = 0
    for i, site in enumerate(results.topology.sites):
        events += [
            {"ph": "M", "name": "thread_name", "pid": i + 1, "tid": first + e, "args": {"name": f"engine {e}"}}
            for e in range(site.engines)
        ]
        first += site.engines
    return events


def _bars(results: Results, r: int) -> list[dict[str, Any]]:
    """Nested spans of one request: asynchronous, because many overlap on one engine."""
    pid, engine = int(results.site[r]) + 1, int(results.engine[r])
    arrival, sent = int(results.workload.arrival_ns[r]), int(results.sent_ns[r])
    queued, first, finished = int(results.queued_ns[r]), int(results.first_token_ns[r]), int(results.finished_ns[r])
    spans = (
        ("request", arrival, finished),
        ("window and decision", arrival, sent),
        ("way to the engine", sent, queued),
        ("queue and prefill", queued, first),
        ("decode", first, finished),
    )
    about = {
        "prompt_tokens": int(results.workload.prompt_tokens[r]),
        "output_tokens": int(results.workload.output_tokens[r]),
        "cached_tokens": int(results.cached_tokens[r]),
        "joules": float(results.request_joules[r]),
        "preemptions": int(results.preemptions[r]),
    }
    events: list[dict[str, Any]] = []
    for name, begin, end in spans:
        common = {"cat": "request", "id": r, "pid": pid, "tid": engine, "name": name}
        events.append({**common, "ph": "b", "ts": _us(begin), "args": about if name == "request" else {}})
        events.append({**common, "ph": "e", "ts": _us(end)})
    return events


def _counters(results: Results, start_ns: int, end_ns: int) -> list[dict[str, Any]]:
    """How many requests of each site wait and run, at evenly spaced instants."""
    instants = np.linspace(start_ns, end_ns, COUNTER_POINTS).astype(np.int64)
    events: list[dict[str, Any]] = []
    for i in range(len(results.topology.sites)):
        here = results.served & (results.site == i)
        queued, first, finished = (
            np.sort(column[here]) for column in (results.queued_ns, results.first_token_ns, results.finished_ns)
        )
        come, begun, gone = (_count(column, instants) for column in (queued, first, finished))
        events += [
            {"ph": "C", "name": "requests", "pid": i + 1, "ts": _us(int(ns)), "args": {"waiting": w, "running": b}}
            for ns, w, b in zip(instants, (come - begun).tolist(), (begun - gone).tolist(), strict=True)
        ]
    return events


def _count(times: NDArray[np.int64], instants: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.searchsorted(times, instants, side="right")


def _us(ns: int) -> float:
    return ns / NANOSECONDS_PER_MICROSECOND
