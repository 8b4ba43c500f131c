"""Forecasts of regions as a table and as JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil
from typing import Any

from rich.table import Table

from heliotrope.api.scalars import format_time
from heliotrope.carbon.forecast.value import CarbonForecast, Expectation
from heliotrope.carbon.forecast.windows import Window, cleanest_window
from heliotrope.carbon.signal import Freshness
from heliotrope.units import SECONDS_PER_HOUR

SHOWN_AHEAD_HOURS = (1, 3, 6, 12, 24)


@dataclass(frozen=True, slots=True)
class RegionError:
    """How wrong forecasts of a region were, g/kWh."""

    mae: float
    baseline_mae: float | None
    horizon_hours: int
    samples: int | None
    measured: str
    """Of what: forecasts as issued, or held-out weeks."""


@dataclass(frozen=True, slots=True)
class RegionForecast:
    """What is known of one region."""

    name: str
    zone: str
    freshness: Freshness
    intensity_g_per_kwh: float | None
    """The newest value, also a stale one; None: there was never one."""
    forecast: CarbonForecast | None
    error: RegionError | None
    problem: str | None = None
    """Why there is no value or no forecast."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The window that is looked for."""

    now_unix_s: float
    window_hours: float
    within_hours: float

    def in_forecast(self, forecast: CarbonForecast | None) -> Window | None:
        """The cleanest one; None without a forecast that covers one."""
        if forecast is None:
            return None
        end = self.now_unix_s + self.within_hours * SECONDS_PER_HOUR
        return cleanest_window(forecast, self.window_hours * SECONDS_PER_HOUR, self.now_unix_s, end)


def table(regions: Sequence[RegionForecast], wanted: Wanted) -> Table:
    """One row a region; hours ahead are means over one hour."""
    ahead = [hours for hours in SHOWN_AHEAD_HOURS if hours <= max(wanted.within_hours, SHOWN_AHEAD_HOURS[0])]
    found = Table(
        "Region",
        "Zone",
        "Now",
        *(f"+{hours} h" for hours in ahead),
        f"Cleanest {wanted.window_hours:g} h",
        "Mean",
        "Against now",
        "Error (yesterday)",
        "Source",
        box=None,
    )
    for region in regions:
        window = wanted.in_forecast(region.forecast)
        found.add_row(
            region.name,
            region.zone,
            _now(region),
            *(_shown(_hour(region.forecast, wanted.now_unix_s, hours), spread=False) for hours in ahead),
            "–" if window is None else _start(window, wanted.now_unix_s),
            _shown(None if window is None else window.intensity, spread=True),
            _against_now(window, region, wanted),
            _error(region.error),
            "–" if region.forecast is None else region.forecast.source,
        )
    return found


def sentences(regions: Sequence[RegionForecast]) -> list[str]:
    """What the table means, and what is missing in it."""
    said = ["g/kWh; in brackets the interval that holds the truth in 80 % of cases. Times are UTC."]
    return said + [f"{region.name}: {region.problem}" for region in regions if region.problem is not None]


def document(regions: Sequence[RegionForecast], wanted: Wanted) -> dict[str, Any]:
    """The same with every point."""
    return {
        "now": _time(wanted.now_unix_s),
        "window_hours": wanted.window_hours,
        "within_hours": wanted.within_hours,
        "regions": [
            {
                "region": region.name,
                "zone": region.zone,
                "freshness": region.freshness.value,
                "intensity_g_per_kwh": region.intensity_g_per_kwh,
                "cleanest": _window(wanted.in_forecast(region.forecast)),
                "error": None
                if region.error is None
                else {
                    "mae_g_per_kwh": region.error.mae,
                    "baseline_mae_g_per_kwh": region.error.baseline_mae,
                    "horizon_hours": region.error.horizon_hours,
                    "samples": region.error.samples,
                    "measured": region.error.measured,
                },
                "forecast": _forecast(region.forecast),
                "problem": region.problem,
            }
            for region in regions
        ],
    }


def _forecast(forecast: CarbonForecast | None) -> dict[str, Any] | None:
    if forecast is None:
        return None
    bounds = (forecast.lower, forecast.upper)
    lower, upper = (None if bound is None else bound.values_g_per_kwh for bound in bounds)
    series = forecast.expected
    return {
        "source": forecast.source,
        "issued": _time(forecast.issued_unix_s),
        "end": _time(forecast.end_unix_s),
        "points": [
            {
                "time": _time(series.times_unix_s[i]),
                "expected_g_per_kwh": series.values_g_per_kwh[i],
                "lower_g_per_kwh": None if lower is None else lower[i],
                "upper_g_per_kwh": None if upper is None else upper[i],
            }
            for i in range(len(series.times_unix_s))
        ],
    }


def _window(window: Window | None) -> dict[str, Any] | None:
    if window is None:
        return None
    return {
        "start": _time(window.start_unix_s),
        "end": _time(window.end_unix_s),
        "expected_g_per_kwh": window.intensity.expected,
        "lower_g_per_kwh": window.intensity.lower,
        "upper_g_per_kwh": window.intensity.upper,
    }


def _hour(forecast: CarbonForecast | None, now_unix_s: float, hours: int) -> Expectation | None:
    start = now_unix_s + hours * SECONDS_PER_HOUR
    return None if forecast is None else forecast.mean_over(start, start + SECONDS_PER_HOUR)


def _now(region: RegionForecast) -> str:
    if region.intensity_g_per_kwh is None:
        return "–"
    value = f"{region.intensity_g_per_kwh:.0f}"
    return value if region.freshness is Freshness.FRESH else f"{value} ({region.freshness.value.lower()})"


def _shown(expected: Expectation | None, *, spread: bool) -> str:
    if expected is None:
        return "–"
    if not spread or expected.lower is None or expected.upper is None:
        return f"{expected.expected:.0f}"
    return f"{expected.expected:.0f} ({expected.lower:.0f}–{expected.upper:.0f})"


def _start(window: Window, now_unix_s: float) -> str:
    if window.start_unix_s <= now_unix_s:
        return "now"
    hours = (window.start_unix_s - now_unix_s) / SECONDS_PER_HOUR
    when = datetime.fromtimestamp(window.start_unix_s, UTC)
    return f"{when:%a %H:%M} (in {ceil(hours)} h)"


def _against_now(window: Window | None, region: RegionForecast, wanted: Wanted) -> str:
    """What waiting is expected to change against starting now, over the same length of time."""
    if window is None or region.forecast is None:
        return "–"
    at_once = region.forecast.mean_over(wanted.now_unix_s, wanted.now_unix_s + wanted.window_hours * SECONDS_PER_HOUR)
    if at_once is None or at_once.expected == 0.0:
        return "–"
    return f"{100.0 * (window.intensity.expected / at_once.expected - 1.0):+.0f} %"


def _error(error: RegionError | None) -> str:
    if error is None:
        return "–"
    baseline = "" if error.baseline_mae is None else f" ({error.baseline_mae:.1f})"
    return f"{error.mae:.1f}{baseline}"


def _time(unix_s: float) -> str:
    return format_time(datetime.fromtimestamp(unix_s, UTC))
