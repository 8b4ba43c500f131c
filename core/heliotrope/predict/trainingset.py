"""Samples as plain arrays: for training, for the disk, and on the way to another process.

heliotrope-samples 1
sha256 <digest of all bytes after this line>
{"table": "requests", "features": […], "targets": […], "samples": 1234}
<rows, labels, times: little-endian float64><splits: uint8>
"""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heliotrope.errors import InvalidInputError
from heliotrope.predict.features import FloatColumn, Matrix
from heliotrope.predict.models import HardwareKey, hardware_keys
from heliotrope.predict.sample import Sample, refused_label
from heliotrope.predict.targets import TABLES, Table, Target
from heliotrope.sealed import sealed_bytes, unsealed_bytes

FORMAT = "heliotrope-samples 1"
MAX_SAMPLES = 1_000_000
_HEAD_BYTES = 65_536


class InvalidSamplesError(InvalidInputError):
    """Stored or received samples are cut off, were changed, or are of another version."""


class Split(IntEnum):
    """What a sample is used for; decided once, by its key."""

    TRAIN = 0
    CALIBRATE = 1
    """Residuals on these make the quantiles."""
    TEST = 2
    """Scores on these decide on promotion."""


BLOCK = 10
"""Samples of one source in a row that are trained on, or held out, together."""
_TURNS = "TTCTTETTCTTTETTCTTET"
"""Whose turn it is, block after block: any seven in a row have one to calibrate and one to test with."""
_SPLIT = {"T": Split.TRAIN, "C": Split.CALIBRATE, "E": Split.TEST}


def split_of(key: str) -> Split:
    """Of every 20 samples 14 are trained on, 3 calibrate and 3 test; the same key always goes the same way.

    The blocks of one source take turns, so that few of them are enough for all three; other keys are spread by chance.
    """
    source, separator, block = key.rpartition(" ")
    is_block = bool(separator) and block.isdecimal() and len(block) < 19
    number = zlib.crc32(source.encode()) + int(block) if is_block else zlib.crc32(key.encode())
    return _SPLIT[_TURNS[number % len(_TURNS)]]


def block_key(source: str, position: int) -> str:
    """The key of a sample that is the position-th of its source (an endpoint): blocks of neighbours stay together.

    Requests that run at the same time share their engine's state and each other's delays. If some of them were trained
    on and others tested, tests would be too good and quantiles too narrow for any other time.
    """
    return f"{source} {position // BLOCK}"


_KEYS = {split: next(key for key in map(str, range(1_000)) if split_of(key) is split) for split in Split}
"""A key that leads to each split."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainingSet:
    """n samples of one table as columns."""

    table: Table
    rows: Matrix
    """(n, F)."""
    labels: Matrix
    """(n, targets); NaN: not observed."""
    at_unix_s: FloatColumn
    splits: NDArray[np.uint8]
    """`Split` of each."""

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of(cls, table: Table, samples: Sequence[Sample]) -> "TrainingSet":
        """Samples as columns, in their order. One row at a time, so that other threads are never held up for long."""
        n = len(samples)
        rows, labels = np.empty((n, len(table.features))), np.empty((n, len(table.targets)))
        for i, sample in enumerate(samples):
            rows[i], labels[i] = sample.row, sample.labels
        at = np.array([s.at_unix_s for s in samples], dtype=np.float64)
        splits = np.array([split_of(s.key) for s in samples], dtype=np.uint8)
        return cls(table, rows, labels, at, splits)

    @classmethod
    def in_time(cls, table: Table, samples: Sequence[Sample]) -> "TrainingSet":
        """Samples as columns, oldest first."""
        return cls.of(table, sorted(samples, key=lambda sample: (sample.at_unix_s, sample.key)))

    def labels_of(self, target: Target) -> FloatColumn:
        """One target's labels."""
        labels: FloatColumn = self.labels[:, self.table.targets.index(target)]
        return labels

    def where(self, mask: NDArray[np.bool_]) -> "TrainingSet":
        """Those samples only."""
        return TrainingSet(self.table, self.rows[mask], self.labels[mask], self.at_unix_s[mask], self.splits[mask])

    def without_before(self, cuts: Mapping[HardwareKey, float]) -> "TrainingSet":
        """Without samples of these hardwares from before these times: what a drift made untrue."""
        keep = np.ones(len(self), dtype=np.bool_)
        keys = hardware_keys(self.rows, self.table)
        for key, since_unix_s in cuts.items():
            keep &= (keys != key) | (self.at_unix_s >= since_unix_s)
        return self.where(keep)

    def samples(self) -> Iterator[Sample]:
        """One by one; keys are new, but each leads to the split that the sample had."""
        for i in range(len(self)):
            key = _KEYS[self.splits[i]]
            yield Sample(self.table, key, float(self.at_unix_s[i]), self.rows[i].copy(), self.labels[i].copy())

    def to_bytes(self) -> bytes:
        """The file."""
        head = {
            "table": self.table.name,
            "features": list(self.table.feature_names),
            "targets": [target.value for target in self.table.targets],
            "samples": len(self),
        }
        numbers = (np.ascontiguousarray(part, dtype="<f8") for part in (self.rows, self.labels, self.at_unix_s))
        body = json.dumps(head).encode() + b"\n" + b"".join(n.tobytes() for n in numbers) + self.splits.tobytes()
        return sealed_bytes(FORMAT, body)

    @classmethod
    def from_bytes(cls, data: bytes) -> "TrainingSet":
        """Read what `to_bytes` wrote.

        Raises:
            InvalidSamplesError: if it is cut off, was changed, is of another version, or holds what cannot be true.
        """
        body = unsealed_bytes(data, FORMAT, name="samples", error=InvalidSamplesError)
        head, ended, content = body.partition(b"\n")
        if not ended or len(head) > _HEAD_BYTES:
            raise InvalidSamplesError("samples.head", f"must be a line of at most {_HEAD_BYTES} bytes")
        table, count = _head(head)
        return _checked(_columns(table, count, content))


def _head(line: bytes) -> tuple[Table, int]:
    try:
        head: Any = json.loads(line)
        table = TABLES[head["table"]]
        count = head["samples"]
        same = (head["features"], head["targets"]) == (list(table.feature_names), [t.value for t in table.targets])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidSamplesError("samples.head", f"cannot be read: {error!r}") from None
    if not same:
        raise InvalidSamplesError("samples.features", "are not the features and targets of this version")
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MAX_SAMPLES:
        raise InvalidSamplesError("samples.samples", f"must be a whole number of at most {MAX_SAMPLES}")
    return table, count


def _columns(table: Table, count: int, content: bytes) -> TrainingSet:
    widths = (len(table.features), len(table.targets), 1)
    numbers = count * sum(widths)
    if len(content) != numbers * 8 + count:
        raise InvalidSamplesError("samples", "have another length than their head says")
    values = np.frombuffer(content, dtype="<f8", count=numbers).astype(np.float64)
    splits = np.frombuffer(content, dtype=np.uint8, offset=numbers * 8)
    rows, labels, at = np.split(values, np.cumsum([count * width for width in widths])[:-1])
    return TrainingSet(table, rows.reshape(count, widths[0]), labels.reshape(count, widths[1]), at, splits)


def _checked(samples: TrainingSet) -> TrainingSet:
    if np.isinf(samples.rows).any():
        raise InvalidSamplesError("samples.rows", "must not be infinite")
    if not np.isfinite(samples.at_unix_s).all() or (samples.at_unix_s < 0.0).any():
        raise InvalidSamplesError("samples.at_unix_s", "must be Unix seconds")
    if (samples.splits > max(Split)).any():
        raise InvalidSamplesError("samples.splits", f"must be at most {max(Split)}")
    for target in samples.table.targets:
        labels = samples.labels_of(target)
        known = labels[~np.isnan(labels)]
        if len(known) and any(refused_label(target, float(each)) for each in (known.min(), known.max())):
            raise InvalidSamplesError(f"samples.{target}", "holds labels that cannot be true")
    return samples
