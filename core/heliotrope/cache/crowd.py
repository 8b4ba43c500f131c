"""Transfers that are on their way and take the links of endpoints: each leaves others their share.

An end of a link that n transfers use at once gives each an nth of its rate, and a transfer is as fast as the more
crowded of its ends lets it be. Who decides knows the transfers that it has caused itself; those of others are unknown
and count for nothing, so an estimate is never slower for not knowing them.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heliotrope.cache.links import LinkClass

SIDES = 2
"""Links of an endpoint that do not share anything: to its own host, and to everywhere else."""


def side_of(kind: LinkClass) -> int:
    """Which of its links an endpoint takes."""
    return 0 if kind is LinkClass.NODE else 1


@dataclass(frozen=True, slots=True)
class Crowd:
    """How many transfers take the links of n endpoints."""

    into: NDArray[np.float64]
    """Shape (`SIDES`, n): those that an endpoint reads."""
    out: NDArray[np.float64]
    """Shape (`SIDES`, n): those that others read from it."""

    @classmethod
    def none(cls, n: int) -> "Crowd":
        """Nothing is on its way."""
        return cls(np.zeros((SIDES, n)), np.zeros((SIDES, n)))


def sharers(side: int, reader: Crowd, i: int, source: Crowd, j: int) -> float:
    """By how many a transfer from endpoint j to endpoint i shares the more crowded of its ends, itself included."""
    return 1.0 + max(float(reader.into[side, i]), float(source.out[side, j]))
