"""Sessions as columns of turns, and the documented generator of them.

ShareGPT and ShareChat cannot be shipped. The generator draws what the paper says of them: lengths so that the shares of
turns with at least 4K and 8K history tokens are those of §2.2, a load that swings with the day, think times mostly
below the cache's TTL, and qualities of five models that depend on how difficult a turn is, which is alike within a
session. The constants of the qualities bring three figures of the paper near that describe its predictor, no emissions:
Session-Affinity serves 90 % of the turns on the 70B model, FairCarbon reaches 97.3 % of its quality and hits the cache
in 59 % of them.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heliotrope.units import SECONDS_PER_HOUR
from heliotrope_sim.reproduce.context.profiles import MODELS, Floats, Indices, profile

MEDIAN_TURNS, SIGMA_TURNS, MAX_TURNS = 5.0, 1.0, 100
"""Turns of a session: log-normal, rounded, cut."""
MEDIAN_NEW_TOKENS, SIGMA_NEW = 140.0, 1.0
MEDIAN_OUTPUT_TOKENS, SIGMA_OUTPUT = 280.0, 0.7
SIGMA_SESSION = 0.8
"""Of a factor on both that a session's turns share: some people paste documents, others chat."""
MAX_CONTEXT_TOKENS = 120_000.0
"""A session ends before it outgrows the largest model's context."""
DAILY_SWING = 0.6
"""Of the rate at which sessions start around its mean; busiest at `BUSIEST_HOUR`, UTC."""
BUSIEST_HOUR = 20.0
MEDIAN_THINK_SECONDS, SIGMA_THINK = 90.0, 1.5
"""From arrival to arrival; 2.3 % are longer than the cache's TTL of 30 minutes."""
SIGMA_OUTPUT_ESTIMATE = 0.4
"""Of the logarithm of the estimated over the realised length."""
QUALITY_LOSS = (1.3, 0.9, 0.65, 0.62, 0.15)
"""What a model's quality loses from the easiest to the hardest turn, in the order of `MODELS`."""
SIGMA_QUALITY = 0.02
"""Of a model's own spread around that."""
SESSION_CORRELATION = 0.8
"""Of the difficulties of two turns of a session."""


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Q turns of S sessions, session by session and in each in order."""

    session: Indices
    """(Q,) from 0 to S - 1."""
    turn: Indices
    """(Q,) from 1."""
    arrival_seconds: Floats
    """(Q,) from the start; a turn that arrives before its predecessor ends waits for it."""
    new_tokens: Floats
    history_tokens: Floats
    output_tokens: Floats
    expected_output_tokens: Floats
    quality: Floats
    """(Q, 5) of each model."""
    coin: Floats
    """(Q,) in [0, 1): what a policy that draws lots draws."""
    home_region: Indices
    """(S,) of a policy that may not leave a region."""
    first_hour: int
    """Of 2022, at the start."""

    @property
    def sessions(self) -> int:
        """S."""
        return len(self.home_region)

    def __len__(self) -> int:
        return len(self.session)

    @property
    def last(self) -> NDArray[np.bool_]:
        """(Q,) whether a turn is its session's last."""
        return np.append(self.session[1:] != self.session[:-1], True)

    @property
    def turns_of_session(self) -> Indices:
        """(S,)."""
        return np.bincount(self.session, minlength=self.sessions)

    @property
    def context_tokens(self) -> Floats:
        """(Q,) of a turn when it ends."""
        column: Floats = self.history_tokens + self.new_tokens + self.output_tokens
        return column


@dataclass(frozen=True, slots=True)
class Episode:
    """A stretch of synthetic sessions."""

    first_hour: int
    hours: float
    sessions_per_hour: float
    """Mean over a day."""
    seed: int


def generate(episode: Episode) -> Workload:
    """The sessions of an episode; starts are Poisson around the day's curve, equal episodes give equal sessions."""
    rng = np.random.default_rng([episode.seed, episode.first_hour])
    starts = _starts(episode, rng)
    count = len(starts)
    drawn = np.exp(math.log(MEDIAN_TURNS) + SIGMA_TURNS * rng.standard_normal(count))
    turns = np.clip(np.round(drawn), 1, MAX_TURNS).astype(np.intp)
    session = np.repeat(np.arange(count), turns)
    first = np.cumsum(turns) - turns
    q = len(session)
    factor = np.exp(SIGMA_SESSION * rng.standard_normal(count))[session]
    new = np.maximum(np.round(MEDIAN_NEW_TOKENS * factor * np.exp(SIGMA_NEW * rng.standard_normal(q))), 1.0)
    output = np.maximum(np.round(MEDIAN_OUTPUT_TOKENS * factor * np.exp(SIGMA_OUTPUT * rng.standard_normal(q))), 1.0)
    think = MEDIAN_THINK_SECONDS * np.exp(SIGMA_THINK * rng.standard_normal(q))
    think[first] = 0.0
    keep = _running(new + output, first, session) <= MAX_CONTEXT_TOKENS
    keep[first] = True
    history = _running(new + output, first, session) - new - output
    arrival = starts[session] + _running(think, first, session)
    quality = qualities(session, count, rng)
    expected = output * np.exp(SIGMA_OUTPUT_ESTIMATE * rng.standard_normal(q))
    coin, home = rng.random(q), rng.integers(0, 4, count)
    number = np.arange(q) - first[session] + 1
    return Workload(
        session=session[keep],
        turn=number[keep],
        arrival_seconds=arrival[keep],
        new_tokens=new[keep],
        history_tokens=history[keep],
        output_tokens=output[keep],
        expected_output_tokens=expected[keep],
        quality=quality[keep],
        coin=coin[keep],
        home_region=home,
        first_hour=episode.first_hour,
    )


def _starts(episode: Episode, rng: np.random.Generator) -> Floats:
    """Seconds from the episode's start, by thinning; at least one."""
    busiest = episode.sessions_per_hour * (1.0 + DAILY_SWING)
    count = max(int(rng.poisson(busiest * episode.hours)), 1)
    hours = np.sort(rng.random(count)) * episode.hours
    angle = (episode.first_hour + hours - BUSIEST_HOUR) * (2.0 * math.pi / 24.0)
    kept = rng.random(count) * (1.0 + DAILY_SWING) < 1.0 + DAILY_SWING * np.cos(angle)
    kept[0] = True
    starts: Floats = hours[kept] * SECONDS_PER_HOUR
    return starts


def qualities(session: Indices, sessions: int, rng: np.random.Generator) -> Floats:
    """(Q, 5): a model's quality falls linearly with the difficulty of a turn, uniform in [0, 1] over all turns."""
    shared, own = rng.standard_normal(sessions)[session], rng.standard_normal(len(session))
    z = math.sqrt(SESSION_CORRELATION) * shared + math.sqrt(1.0 - SESSION_CORRELATION) * own
    difficulty = np.array([0.5 * (1.0 + math.erf(each / math.sqrt(2.0))) for each in z.tolist()])
    noise = SIGMA_QUALITY * rng.standard_normal((len(session), len(MODELS)))
    column: Floats = np.clip(1.0 - difficulty[:, None] * np.array(QUALITY_LOSS) + noise, 0.0, 1.0)
    return column


def peak_sessions(workload: Workload) -> int:
    """P: sessions that are active at once at most, whatever a policy does: each turn takes as long as it can."""
    p = profile()
    slowest = (workload.history_tokens + workload.new_tokens) / p.prefill_tokens_per_second.min() + (
        workload.output_tokens / p.decode_tokens_per_second.min()
    )
    first = np.flatnonzero(workload.turn == 1)
    ends = np.empty(len(workload))
    end = 0.0
    for i, (turn, arrival, takes) in enumerate(
        zip(workload.turn.tolist(), workload.arrival_seconds.tolist(), slowest.tolist(), strict=True)
    ):
        end = (arrival if turn == 1 else max(arrival, end)) + takes
        ends[i] = end
    starts, ends = np.sort(workload.arrival_seconds[first]), np.sort(ends[workload.last])
    return int((np.arange(1, len(starts) + 1) - np.searchsorted(ends, starts, side="left")).max())


def _running(values: Floats, first: Indices, session: Indices) -> Floats:
    """Sums from each session's first turn on."""
    sums = np.cumsum(values)
    column: Floats = sums - (sums[first] - values[first])[session]
    return column
