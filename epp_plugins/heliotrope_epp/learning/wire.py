"""Samples between pickers and a trainer, as JSON: every entry is checked again where it arrives."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from heliotrope.errors import HeliotropeError
from heliotrope.predict.features import FloatColumn
from heliotrope.predict.sample import CLOCK_JUMP_SECONDS, Refusal, Sample, refused_label
from heliotrope.predict.targets import TABLES, Table

MAX_ENTRIES = 10_000
"""In one body."""
MAX_KEY_CHARACTERS = 256
NAN = float("nan")

Numbers = list[float | None]
"""None: unknown. JSON has no NaN."""


class WireError(HeliotropeError):
    """A body is not one of ours, or was written by a version with other features."""


class Entry(msgspec.Struct, forbid_unknown_fields=True):
    """One sample."""

    table: str
    key: str
    at_unix_s: float
    row: Numbers
    labels: Numbers


class Bulk(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /add_training_data_bulk."""

    entries: list[Entry]
    features: dict[str, list[str]] = {}
    """Names of the columns by table; they must be the receiver's own."""


class Rows(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /predict."""

    rows: list[Numbers]
    table: str = "requests"


@dataclass(frozen=True, slots=True)
class Received:
    """What a body held."""

    samples: tuple[Sample, ...]
    refused: Counter[str]
    """Entries that were not believed, by `Refusal`."""


def encode(samples: Sequence[Sample]) -> bytes:
    """The body that sends these."""
    entries = [
        Entry(s.table.name, s.key[:MAX_KEY_CHARACTERS], s.at_unix_s, s.row.tolist(), s.labels.tolist()) for s in samples
    ]
    tables = {sample.table.name: list(sample.table.feature_names) for sample in samples}
    return msgspec.json.encode(Bulk(entries, tables))


def decode(body: bytes, now_unix_s: float) -> Received:
    """The samples of a body, without those that cannot be true.

    Raises:
        WireError: if the whole body cannot be used; the message names the field.
    """
    try:
        bulk = msgspec.json.decode(body, type=Bulk)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(f"not a list of samples: {error}") from error
    if len(bulk.entries) > MAX_ENTRIES:
        raise WireError(f"entries: {len(bulk.entries)} are more than {MAX_ENTRIES}; send smaller batches")
    for name, features in bulk.features.items():
        table = TABLES.get(name)
        if table is None or tuple(features) != table.feature_names:
            raise WireError(f"features.{name}: the sender's features are not ours; run one version of both")
    samples: list[Sample] = []
    refused: Counter[str] = Counter()
    for entry in bulk.entries:
        outcome = _sample(entry, now_unix_s)
        if isinstance(outcome, Refusal):
            refused[outcome.value] += 1
        else:
            samples.append(outcome)
    return Received(tuple(samples), refused)


def matrix(body: bytes) -> tuple[Table, FloatColumn]:
    """The table and the rows, shape (n, F), of a body of POST /predict.

    Raises:
        WireError: if they cannot be used; the message names the field.
    """
    try:
        asked = msgspec.json.decode(body, type=Rows)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(f"not a list of rows: {error}") from error
    table = TABLES.get(asked.table)
    if table is None:
        raise WireError(f"table: must be one of {', '.join(TABLES)}")
    if len(asked.rows) > MAX_ENTRIES:
        raise WireError(f"rows: {len(asked.rows)} are more than {MAX_ENTRIES}; ask for fewer")
    columns = len(table.features)
    for i, row in enumerate(asked.rows):
        if len(row) != columns:
            raise WireError(f"rows[{i}]: has {len(row)} columns instead of {columns}")
    return table, np.array([_column(row) for row in asked.rows], dtype=np.float64).reshape(len(asked.rows), columns)


def _sample(entry: Entry, now_unix_s: float) -> Sample | Refusal:
    table = TABLES.get(entry.table)
    if table is None or not entry.key or len(entry.key) > MAX_KEY_CHARACTERS:
        return Refusal.MALFORMED
    if len(entry.row) != len(table.features) or len(entry.labels) != len(table.targets):
        return Refusal.MALFORMED
    if not 0.0 <= entry.at_unix_s <= now_unix_s + CLOCK_JUMP_SECONDS:
        return Refusal.CLOCK_JUMP
    row, labels = _column(entry.row), _column(entry.labels)
    if np.isinf(row).any():
        return Refusal.MALFORMED
    if all(label is None for label in entry.labels):
        return Refusal.NO_LABEL
    for target, label in zip(table.targets, entry.labels, strict=True):
        refusal = None if label is None else refused_label(target, label)
        if refusal is not None:
            return refusal
    return Sample(table, entry.key, entry.at_unix_s, row, labels)


def _column(numbers: Iterable[float | None]) -> FloatColumn:
    return np.array([NAN if number is None else number for number in numbers], dtype=np.float64)
