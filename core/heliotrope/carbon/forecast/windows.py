"""The cleanest time within a forecast for something that takes a while."""

from dataclasses import dataclass

from heliotrope.carbon.forecast.value import CarbonForecast, Expectation


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time and what is expected over it."""

    start_unix_s: float
    end_unix_s: float
    intensity: Expectation


def cleanest_window(
    forecast: CarbonForecast, duration_s: float, earliest_unix_s: float, latest_end_unix_s: float
) -> Window | None:
    """The window of a length with the least expected mean; the earliest of equal ones.

    The mean over a window changes linearly with its start, except where either end meets a point of the forecast. So
    the least is at one of those, or at either limit.

    Args:
        forecast: what to choose in.
        duration_s: length of the window, > 0.
        earliest_unix_s: it starts then at the earliest.
        latest_end_unix_s: it has ended by then.

    Returns:
        None if no window that the forecast covers fits between the limits.
    """
    assert duration_s > 0.0
    latest_start = latest_end_unix_s - duration_s
    starts = {earliest_unix_s, latest_start, forecast.end_unix_s - duration_s}
    for time in forecast.expected.times_unix_s:
        starts |= {time, time - duration_s, time + forecast.expected.longest_hold_s - duration_s}
    best: Window | None = None
    for start in sorted(starts):
        if not earliest_unix_s <= start <= latest_start:
            continue
        mean = forecast.mean_over(start, start + duration_s)
        if mean is not None and (best is None or mean.expected < best.intensity.expected):
            best = Window(start, start + duration_s, mean)
    return best
