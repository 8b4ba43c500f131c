"""What a model will be asked for: requests and tokens per second ahead, from a bounded history with gaps.

A history is in equal bins; a bin that nobody observed for long enough is NaN and stays unknown: it is neither zero nor
interpolated. The forecast is the level of now and what the same time of the day (and week, once there are two of them)
was, the more of the latter the further ahead:

    expected(h) = seasonal(h) + (level - seasonal(now)) · e^(-h/τ)

Its uncertainty is that of the same forecast over the history: the upper quantile of its relative errors, and no less
than Poisson's. Without a season (less than a day seen) the level holds on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import exp, inf, isfinite, isnan, sqrt

import numpy as np
from numpy.typing import NDArray

from heliotrope.scale.facts import DemandForecast, Mix
from heliotrope.units import SECONDS_PER_DAY

Floats = NDArray[np.float64]

NAN = float("nan")
WEEK_DAYS = 7
QUANTILE = 0.95
_NORMAL = 1.6449
"""Of the standard normal distribution at `QUANTILE`."""
LEAST_OBSERVED_SHARE = 0.5
"""Of a bin, for its rate to be known."""
FADE_SECONDS = 3_600.0
"""τ: how long what is special of now lasts."""
LEVEL_SECONDS = 300.0
"""Time over which the level of now is averaged."""
BURST_SECONDS = 60.0
"""Newest time that a burst is seen in."""
BURST_QUANTILE = 3.0
"""Standard deviations of Poisson noise above what was expected, from which arrivals are a burst."""
DEFAULT_RELATIVE_ERROR = 0.3
"""Upper quantile of relative errors until the history is long enough to measure it."""
QUIET_SECONDS = 1_800.0
"""Without a request for so long, and none at this time of other days, none is expected."""
LONGEST_SILENCE_SECONDS = 180.0
"""Counters that nobody read for longer leave the level of now unknown."""


@dataclass(frozen=True, slots=True)
class Increase:
    """What came in a time, over everybody who counts."""

    seconds: float
    requests: float
    prompt_tokens: float
    output_tokens: float


@dataclass(frozen=True, slots=True)
class Bin:
    """What was seen in a bin, and for how much of it."""

    seconds: float = 0.0
    requests: float = 0.0
    prompt_tokens: float = 0.0
    output_tokens: float = 0.0


@dataclass(frozen=True, slots=True)
class History:
    """Bins of one model, by their number since the epoch; the oldest are forgotten."""

    bin_seconds: float = 300.0
    pace: float = 1.0
    """Multiplies the times over which now is looked at: below 1 for who decides more often than twice a minute."""
    longest: int = 15 * 288
    """Bins that are kept: fifteen days of five minutes."""
    bins: Mapping[int, Bin] = field(default_factory=dict)
    recent: tuple[tuple[float, float, float], ...] = ()
    """End, length and requests of the newest increases, for the level of now and for bursts."""

    def add(self, end_unix_s: float, came: Increase) -> "History":
        """The history with an increase that ended at a time, spread evenly over the bins it covers."""
        bins = dict(self.bins)
        start, width = end_unix_s - came.seconds, self.bin_seconds
        number = int(start // width)
        while number * width < end_unix_s:
            covered = min((number + 1) * width, end_unix_s) - max(number * width, start)
            share, old = covered / came.seconds, bins.get(number, Bin())
            bins[number] = Bin(
                old.seconds + covered,
                old.requests + share * came.requests,
                old.prompt_tokens + share * came.prompt_tokens,
                old.output_tokens + share * came.output_tokens,
            )
            number += 1
        while len(bins) > self.longest:
            del bins[min(bins)]
        recent = [entry for entry in self.recent if entry[0] > end_unix_s - 2.0 * LEVEL_SECONDS * self.pace]
        recent.append((end_unix_s, came.seconds, came.requests))
        return replace(self, bins=bins, recent=tuple(recent))

    def rates(self, until_unix_s: float) -> tuple[int, Floats]:
        """The first bin's number, and requests per second of it and all that follow; NaN where unknown."""
        if not self.bins:
            return 0, np.zeros(0)
        first = min(self.bins)
        last = max(int(until_unix_s // self.bin_seconds), *self.bins)
        rates = np.full(last - first + 1, NAN)
        for number, each in self.bins.items():
            if each.seconds >= LEAST_OBSERVED_SHARE * self.bin_seconds:
                rates[number - first] = each.requests / each.seconds
        return first, rates

    def mix(self) -> Mix | None:
        """Mean lengths of what was asked for, newer requests counting more; None: nothing was."""
        requests = prompt = output = 0.0
        newest = max(self.bins, default=0)
        for number, each in self.bins.items():
            weight = 0.5 ** ((newest - number) * self.bin_seconds / (6.0 * FADE_SECONDS))
            requests += weight * each.requests
            prompt += weight * each.prompt_tokens
            output += weight * each.output_tokens
        if not requests > 0.0 or not prompt > 0.0:
            return None
        return Mix(prompt / requests, output / requests)


def forecast(history: History, now_unix_s: float, step_seconds: float, steps: int) -> DemandForecast | None:
    """What to expect; None: nothing was read for too long, so that nobody knows.

    No traffic is a value: zero requests per second, with an upper quantile that allows for the first of them.

    Args:
        history: of the model.
        now_unix_s: the time.
        step_seconds: length of a step.
        steps: how many; of each the highest expected value within it counts.
    """
    level = _level(history, now_unix_s)
    if level is None or isnan(level[0]):
        return None
    rate, seen_seconds = level
    first, rates = history.rates(now_unix_s)
    season = _season(history, rates)
    width = history.bin_seconds
    here = _seasonal(season, first, rates, now_unix_s, width)
    error = _relative_error(rates, season)
    burst_rate = _burst(history, now_unix_s, rate if here is None else max(rate, here))
    quiet = _quiet(history, now_unix_s)
    expected: list[float] = []
    upper: list[float] = []
    for step in range(steps):
        highest = 0.0
        # Within a step the seasonal pattern may rise: what counts is its highest bin.
        points = max(int(step_seconds // width), 1)
        for point in range(points):
            ahead = step * step_seconds + point * width
            seasonal = _seasonal(season, first, rates, now_unix_s + ahead, width)
            special = 0.0 if here is None else (rate - here) * exp(-ahead / FADE_SECONDS)
            highest = max(highest, rate if seasonal is None or here is None else seasonal + special)
        if burst_rate is not None:
            highest = max(highest, burst_rate * exp(-step * step_seconds / FADE_SECONDS))
        expected.append(highest)
        if highest > 0.0 or not quiet:
            # One request at least may come where some came lately.
            noise = _NORMAL * sqrt(max(highest, 1.0 / seen_seconds) / max(width, seen_seconds))
            upper.append(highest + max(error * highest, noise))
        else:
            upper.append(0.0)
    return DemandForecast(tuple(expected), tuple(upper), history.mix(), burst_rate is not None)


def _level(history: History, now: float) -> tuple[float, float] | None:
    """Requests per second of the newest minutes, and over how long they were seen."""
    newest = max((end for end, _, _ in history.recent), default=-inf)
    if now - newest > LONGEST_SILENCE_SECONDS * history.pace:
        return None
    requests = seconds = 0.0
    for end, length, count in sorted(history.recent, reverse=True):
        if end <= now - LEVEL_SECONDS * history.pace:
            break
        requests, seconds = requests + count, seconds + length
    return (requests / seconds, seconds) if seconds > 0.0 else None


def _quiet(history: History, now: float) -> bool:
    """Whether no request came for so long that none is to be expected."""
    oldest = int((now - QUIET_SECONDS * history.pace) // history.bin_seconds)
    return not any(each.requests > 0.0 for number, each in history.bins.items() if number >= oldest)


def _burst(history: History, now: float, usual: float) -> float | None:
    """The rate of a burst: far more in the newest minute than the level explains."""
    requests = seconds = 0.0
    lately, before = BURST_SECONDS * history.pace, LEVEL_SECONDS * history.pace
    for end, length, count in sorted(history.recent, reverse=True):
        if end <= now - lately or (seconds > 0.0 and seconds + length > lately):
            break
        requests, seconds = requests + count, seconds + length
    if seconds <= 0.0:
        return None
    before_requests = before_seconds = 0.0
    for end, length, count in history.recent:
        if now - before - lately < end <= now - lately:
            before_requests, before_seconds = before_requests + count, before_seconds + length
    base = before_requests / before_seconds if before_seconds > 0.0 else usual
    allowed = base * seconds + BURST_QUANTILE * sqrt(max(base * seconds, 1.0))
    return requests / seconds if requests > max(allowed, 1.5 * base * seconds) else None


def _season(history: History, rates: Floats) -> int | None:
    """Bins of a season that was seen more than once; None: less than a day is known."""
    day = round(SECONDS_PER_DAY / history.bin_seconds)
    if len(rates) >= (WEEK_DAYS + 1) * day:
        return WEEK_DAYS * day
    return day if len(rates) > day else None


def _seasonal(season: int | None, first: int, rates: Floats, time_unix_s: float, width: float) -> float | None:
    """Mean of the known bins a season (or several) earlier; a week's gaps are filled from days."""
    if season is None:
        return None
    index = int(time_unix_s // width) - first
    day = round(SECONDS_PER_DAY / width)
    for period in dict.fromkeys((season, day)):
        earlier = [
            float(rates[place])
            for back in range(1, len(rates) // period + 2)
            if 0 <= (place := index - back * period) < len(rates) and isfinite(rates[place])
        ]
        if earlier:
            return float(np.mean(earlier[:3]))
    return None


def _relative_error(rates: Floats, season: int | None) -> float:
    """Upper quantile of (seen - forecast) / forecast, of the season or, without one, of the bin before."""
    lag = 1 if season is None else season
    if len(rates) <= lag:
        return DEFAULT_RELATIVE_ERROR
    seen, told = rates[lag:], rates[:-lag]
    if season is not None:
        # What is special of now is known a bin later, and corrects the season.
        special = np.concatenate([[0.0], np.nan_to_num((seen - told)[:-1])])
        told = told + special
    known = np.isfinite(seen) & np.isfinite(told) & (told > 0.0)
    if known.sum() < 12:
        return DEFAULT_RELATIVE_ERROR
    errors = (seen[known] - told[known]) / told[known]
    return float(max(np.quantile(errors, QUANTILE), 0.0))
