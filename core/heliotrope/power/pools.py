"""What a split of watts is about: pools of replicas, the points that they may run at, and what a choice carries."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from heliotrope.api.v1alpha1.common import Role
from heliotrope.power.latency import NAN, Promise, carried_within
from heliotrope.power.options import ClockOption

TINY = 1e-9


@dataclass(frozen=True, slots=True)
class PowerPool:
    """The awake replicas of one variant, which share a clock."""

    name: str
    """Unique in a split."""
    model: str
    role: Role
    replicas: int
    options: tuple[ClockOption, ...]
    """Clocks that may be set, ascending; one option is a pool whose clock cannot be moved."""
    tpot_seconds: tuple[float, ...] = ()
    """TPOT at each option, NaN or empty where it is unknown."""
    standing_watts: float = 0.0
    """Power of its replicas at rest, which no clock changes."""
    slots: float = NAN
    """Requests that one decode replica works on at once, its usual batch; NaN: unknown, and one is assumed."""
    present_mhz: int | None = None
    """The clock that is set now; None: the device's own choice, which counts as its highest."""


@dataclass(frozen=True, slots=True)
class Point:
    """A pool at one clock."""

    option: ClockOption
    watts: float
    """Of the pool, replicas at rest left aside."""
    rate: float
    """Requests per second within the promise."""


def points_of(pool: PowerPool, promise: Promise) -> list[Point]:
    """A pool at each of its options."""
    tpots = pool.tpot_seconds or (NAN,) * len(pool.options)
    return [
        Point(option, pool.replicas * option.watts, pool.replicas * carried_within(option, promise, tpot, pool.slots))
        for option, tpot in zip(pool.options, tpots, strict=True)
    ]


def watts_of(points: Iterable[Point]) -> float:
    """Power of all of them together."""
    return sum(point.watts for point in points)


def goodput(pools: Sequence[PowerPool], chosen: Mapping[str, Point], asked: Mapping[str, float]) -> float:
    """Requests per second within the promise over all models, none beyond what is asked for.

    Where nothing is known of what is asked, all that can be carried counts.
    """
    total = 0.0
    for model, most in asked.items():
        rates = dict.fromkeys(Role, 0.0)
        roles = {pool.role for pool in pools if pool.model == model}
        for pool in pools:
            if pool.model == model:
                rates[pool.role] += chosen[pool.name].rate
        if {Role.PREFILL, Role.DECODE} <= roles:
            carried = rates[Role.BOTH] + min(rates[Role.PREFILL], rates[Role.DECODE])
        else:
            carried = sum(rates.values())
        total += min(carried, most)
    return total
