"""What is remembered for training: bounded, stratified, the newest in place of the oldest.

One busy endpoint in one regime would fill a plain window within minutes and the model would forget everything else.
So samples are kept per stratum (hardware × load regime × prompt length), each bounded, and when the whole is full the
largest stratum gives way.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from heliotrope.predict.features import Matrix
from heliotrope.predict.models import hardware_keys
from heliotrope.predict.regimes import regimes_of
from heliotrope.predict.sample import Sample
from heliotrope.predict.targets import Table
from heliotrope.predict.trainingset import TrainingSet

CAPACITY = 20_000
PER_STRATUM = 1_000
_SIZE_COLUMNS = {"requests": "prompt_tokens", "steps": "prefill_tokens"}

Stratum = tuple[int, int, int]
"""Hardware key, regime, bucket of the prompt's length."""


class StratifiedWindow:
    """Samples of one table. Not for use from several threads."""

    def __init__(self, table: Table, capacity: int = CAPACITY, per_stratum: int = PER_STRATUM) -> None:
        self.table = table
        self.added = 0
        """Samples ever added."""
        self.evicted = 0
        """Of them, those that made room for newer ones."""
        self._capacity = capacity
        self._per_stratum = per_stratum
        self._strata: dict[Stratum, deque[Sample]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def strata(self) -> dict[Stratum, int]:
        """Samples by stratum."""
        return {stratum: len(samples) for stratum, samples in self._strata.items()}

    def add(self, sample: Sample) -> Stratum:
        """As `add_many`, for one."""
        return self.add_many((sample,))[0]

    def add_many(self, samples: Sequence[Sample]) -> list[Stratum]:
        """Remember them; forgets the oldest of a stratum, or of the largest one, when there is no room.

        Returns the stratum of each. Ten at once take a tenth of the time of ten calls.
        """
        for sample in samples:
            if sample.table is not self.table:
                raise ValueError(f"a sample of {sample.table.name} does not go into a window of {self.table.name}")
        if not samples:
            return []
        strata = strata_of(np.array([sample.row for sample in samples]), self.table)
        for sample, stratum in zip(samples, strata, strict=True):
            self._add(sample, stratum)
        return strata

    def add_all(self, samples: TrainingSet) -> None:
        """Remember every sample of a set, in its order."""
        self.add_many(list(samples.samples()))

    def samples(self) -> list[Sample]:
        """All that is remembered, in no order: a copy, so that a thread can go on with it."""
        return [sample for stratum in self._strata.values() for sample in stratum]

    def training_set(self) -> TrainingSet:
        """All that is remembered, oldest first."""
        return TrainingSet.in_time(self.table, self.samples())

    def _add(self, sample: Sample, stratum: Stratum) -> None:
        samples = self._strata.setdefault(stratum, deque())
        samples.append(sample)
        self.added += 1
        self._size += 1
        if len(samples) > self._per_stratum:
            self._evict(stratum)
        elif self._size > self._capacity:
            self._evict(max(self._strata, key=lambda each: len(self._strata[each])))

    def _evict(self, stratum: Stratum) -> None:
        samples = self._strata[stratum]
        samples.popleft()
        if not samples:
            del self._strata[stratum]
        self._size -= 1
        self.evicted += 1


def strata_of(rows: Matrix, table: Table) -> list[Stratum]:
    """The stratum of each row."""
    size = rows[:, table.feature_names.index(_SIZE_COLUMNS[table.name])]
    keys: NDArray[np.int64] = hardware_keys(rows, table)
    regimes = regimes_of(rows, table)
    # Powers of four: 0, 1-3, 4-15, … tokens; unknown is -1.
    buckets = np.where(np.isnan(size), -1.0, np.floor(np.log2(np.maximum(size, 0.0) + 1.0) / 2.0))
    return [(int(k), int(r), int(b)) for k, r, b in zip(keys, regimes, buckets, strict=True)]
