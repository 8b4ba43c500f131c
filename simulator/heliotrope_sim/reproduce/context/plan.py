"""Which sessions a run of the experiment replays, in full and quick.

Training, held-out and compared stretches lie on different days of the year and have different sessions.
"""

from dataclasses import dataclass

from heliotrope_sim.reproduce.context.intensity import hour_of_year
from heliotrope_sim.reproduce.context.tasks import Hour, Stretch
from heliotrope_sim.reproduce.context.workload import Episode
from heliotrope_sim.reproduce.experiment import Settings

SESSIONS_PER_HOUR = 120.0
COMPARED_DAYS = ((1, 18), (4, 19), (7, 19), (10, 18))
"""Month and day of the stretches, in every season."""
TRAINING_DAYS = ((2, 15), (5, 10), (8, 16), (11, 22))
HELD_OUT_DAYS = ((3, 15), (6, 14), (9, 13), (12, 6))
MOONCAKE_HOURS = tuple((month, day, hour) for month, day in COMPARED_DAYS for hour in (2, 10, 18))
WHOLE_DAY = (0, 24.0)
"""First hour and hours."""
EVENING = (18, 2.5)


@dataclass(frozen=True, slots=True)
class Plan:
    """Stretches and how much of them is branched."""

    compared: tuple[Stretch, ...]
    training: tuple[Stretch, ...]
    held_out: tuple[Stretch, ...]
    mooncake: tuple[Stretch, ...]
    branched_share: float


def plan(settings: Settings) -> Plan:
    """The usual sizes."""
    if settings.quick:
        return Plan(
            compared=_episodes(COMPARED_DAYS[::2], EVENING, settings.seed, 0),
            training=_episodes(TRAINING_DAYS[::2], EVENING, settings.seed, 1),
            held_out=_episodes(HELD_OUT_DAYS[:1], EVENING, settings.seed, 2),
            mooncake=_hours(MOONCAKE_HOURS[:1], settings.seed, 20.0),
            branched_share=1.0,
        )
    return Plan(
        compared=_episodes(COMPARED_DAYS, WHOLE_DAY, settings.seed, 0),
        training=_episodes(TRAINING_DAYS, WHOLE_DAY, settings.seed, 1),
        held_out=_episodes(HELD_OUT_DAYS, WHOLE_DAY, settings.seed, 2),
        mooncake=_hours(MOONCAKE_HOURS, settings.seed, 60.0),
        branched_share=1.0,
    )


def _episodes(
    days: tuple[tuple[int, int], ...], part: tuple[int, float], seed: int, stream: int
) -> tuple[Stretch, ...]:
    hour, hours = part
    return tuple(
        Episode(hour_of_year(*day, hour), hours, SESSIONS_PER_HOUR, seed * 1_000 + stream * 100 + i)
        for i, day in enumerate(days)
    )


def _hours(hours: tuple[tuple[int, int, int], ...], seed: int, minutes: float) -> tuple[Stretch, ...]:
    return tuple(Hour(hour_of_year(*hour), seed, minutes) for hour in hours)
