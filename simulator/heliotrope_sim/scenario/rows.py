"""Traces of a user's own: CSV with a header, or JSON lines."""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from heliotrope.carbon.series import unix_seconds
from heliotrope.errors import InvalidInputError

COLUMNS = frozenset(
    {"arrival_seconds", "timestamp", "prompt_tokens", "output_tokens", "session", "class", "region", "block_ids"}
)
MOST_TOKENS = 10_000_000


@dataclass(frozen=True, slots=True)
class Row:
    """One request."""

    line: int
    arrival_s: float
    """Seconds since anything."""
    prompt_tokens: int
    output_tokens: int
    session: str | None
    request_class: str | None
    region: str | None
    block_ids: tuple[int, ...]


def read_rows(data: bytes, name: str, *, most: int | None, longest_gap_s: float | None) -> tuple[Row, ...]:
    """The requests of a trace in their order.

    A row has `arrival_seconds` or `timestamp` (RFC 3339), `prompt_tokens` and `output_tokens`; `session`, `class`,
    `region` and, in JSON lines, `block_ids` may be there. Times count from the first row.

    Args:
        data: UTF-8; CSV, or JSON lines where the name ends in `.jsonl`.
        name: of the file.
        most: rows to read; None: all.
        longest_gap_s: a longer time between two rows is a hole in the recording; None: it may be.

    Raises:
        InvalidInputError: names file and line.
    """
    found: list[Row] = []
    for line, record in _records(data, name):
        if most is not None and len(found) >= most:
            break
        where = f"{name}:{line}"
        row = _row(record, line, where)
        if row.arrival_s < 0.0 and "arrival_seconds" in record:
            raise InvalidInputError(where, f"arrival_seconds {row.arrival_s} is negative")
        if found and row.arrival_s < found[-1].arrival_s:
            raise InvalidInputError(
                where, f"arrives {found[-1].arrival_s - row.arrival_s:g} s before the row above; sort"
            )
        gap = row.arrival_s - found[-1].arrival_s if found else 0.0
        if longest_gap_s is not None and gap > longest_gap_s:
            raise InvalidInputError(
                where,
                f"arrives {gap:g} s after the row above: a hole longer than longest_gap_seconds {longest_gap_s:g}",
            )
        found.append(row)
    if not found:
        raise InvalidInputError(name, "holds no requests")
    return tuple(found)


def _records(data: bytes, name: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    text = data.decode("utf-8-sig", errors="replace")
    if name.endswith(".jsonl"):
        for line, row in enumerate(text.splitlines(), start=1):
            if row.strip():
                yield line, _json_object(row, f"{name}:{line}")
        return
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        header = reader.fieldnames or ()
        unknown = [column for column in header if column not in COLUMNS - {"block_ids"}]
        if unknown:
            raise InvalidInputError(
                f"{name}:1", f"unknown columns {', '.join(unknown)}; docs/simulate.md has those there are"
            )
        for record in reader:
            if None in record or None in record.values():
                raise InvalidInputError(
                    f"{name}:{reader.line_num}", f"must have {len(header)} fields as the header has"
                )
            yield reader.line_num, {key: value for key, value in record.items() if value != ""}
    except csv.Error as error:
        raise InvalidInputError(f"{name}:{max(reader.line_num, 1)}", f"is not CSV: {error}") from error


def _json_object(text: str, where: str) -> Mapping[str, Any]:
    try:
        record = json.loads(text)
    except ValueError as error:
        raise InvalidInputError(where, f"is not JSON: {error}") from error
    if not isinstance(record, Mapping):
        raise InvalidInputError(where, "must be an object")
    unknown = [key for key in record if key not in COLUMNS]
    if unknown:
        raise InvalidInputError(where, f"unknown keys {', '.join(unknown)}; docs/simulate.md has those there are")
    return {key: value for key, value in record.items() if value is not None}


def _row(record: Mapping[str, Any], line: int, where: str) -> Row:
    if ("arrival_seconds" in record) == ("timestamp" in record):
        raise InvalidInputError(where, "needs exactly one of arrival_seconds and timestamp")
    if "timestamp" in record:
        try:
            arrival = unix_seconds(str(record["timestamp"]))
        except InvalidInputError as error:
            raise InvalidInputError(where, str(error)) from error
    else:
        arrival = _number(record["arrival_seconds"], "arrival_seconds", where)
    blocks = record.get("block_ids", ())
    if not isinstance(blocks, list | tuple) or not all(type(b) is int and 0 <= b < 2**40 for b in blocks):
        raise InvalidInputError(where, "block_ids must be a list of whole numbers from 0 to 2^40 - 1")
    return Row(
        line=line,
        arrival_s=arrival,
        prompt_tokens=_tokens(record, "prompt_tokens", where),
        output_tokens=_tokens(record, "output_tokens", where),
        session=_text(record, "session"),
        request_class=_text(record, "class"),
        region=_text(record, "region"),
        block_ids=tuple(blocks),
    )


def _tokens(record: Mapping[str, Any], key: str, where: str) -> int:
    if key not in record:
        raise InvalidInputError(where, f"{key} is missing")
    value = _number(record[key], key, where)
    if value != int(value) or not 1 <= value <= MOST_TOKENS:
        raise InvalidInputError(where, f"{key} {record[key]} must be a whole number from 1 to {MOST_TOKENS}")
    return int(value)


def _number(value: Any, key: str, where: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InvalidInputError(where, f"{key} {value!r} is not a number") from None
    if not isfinite(number):
        raise InvalidInputError(where, f"{key} {value!r} is not finite")
    return number


def _text(record: Mapping[str, Any], key: str) -> str | None:
    return None if key not in record else str(record[key])
