"""Arrivals and token counts of recorded requests."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from heliotrope.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request of a trace; `arrival_seconds` counts from the first one."""

    arrival_seconds: float
    prompt_tokens: int
    output_tokens: int


def load_azure(path: Path) -> tuple[TraceRequest, ...]:
    """Read an Azure LLM inference trace (columns TIMESTAMP, ContextTokens, GeneratedTokens), in order of arrival.

    Raises:
        InvalidInputError: if a row cannot be read; the message names file and line.
    """
    rows: list[tuple[float, int, int]] = []
    with path.open(newline="") as file:
        for number, row in enumerate(csv.DictReader(file), start=2):
            try:
                # Times have 100 ns resolution, which datetime does not take.
                moment = datetime.fromisoformat(row["TIMESTAMP"][:26]).replace(tzinfo=UTC).timestamp()
                rows.append((moment, int(row["ContextTokens"]), int(row["GeneratedTokens"])))
            except (KeyError, TypeError, ValueError) as error:
                raise InvalidInputError(f"{path.name}:{number}", f"not a row of the trace: {error}") from error
    rows.sort()
    first = rows[0][0] if rows else 0.0
    return tuple(TraceRequest(moment - first, prompt, output) for moment, prompt, output in rows)


def stretch(
    requests: Sequence[TraceRequest], *, skip: int, rate_per_second: float, seconds: float
) -> list[TraceRequest]:
    """A stretch of a trace at another mean rate: arrivals keep their pattern, time is scaled evenly.

    Args:
        requests: the trace.
        skip: requests to leave out at its start.
        rate_per_second: mean arrivals per second that the result has.
        seconds: length of the result.

    Raises:
        InvalidInputError: if the trace is too short for that many requests.
    """
    count = round(rate_per_second * seconds)
    chosen = requests[skip : skip + count]
    if len(chosen) < count or count < 2:
        raise InvalidInputError("trace", f"has {len(requests) - skip} requests after {skip}, {count} are needed")
    start = chosen[0].arrival_seconds
    scale = seconds / (chosen[-1].arrival_seconds - start)
    return [
        TraceRequest((r.arrival_seconds - start) * scale, max(r.prompt_tokens, 1), max(r.output_tokens, 1))
        for r in chosen
    ]
