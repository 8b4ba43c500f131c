"""Requests that may wait: held until the hour in which some region is expected to be cleanest, then placed.

When is decided here, by forecast; where is decided by the scheduler when the request leaves, on what is true then.
Every request leaves by its latest start whatever grids do, and at once where nothing is known of them.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from heliotrope.decide.candidates import RegionView
from heliotrope.place.window import FloatColumn
from heliotrope_epp.region.config import Deadlines, WhenFull
from heliotrope_epp.region.placed import Waiting
from heliotrope_epp.region.view import EXPECTED_SERVICE_S, intensities

LEAST_GAIN = 0.02
"""Of the intensity now: less is not worth a client's wait."""
LOOK_EVERY_S = 1.0
PLAN_EVERY_S = 60.0
KEEP_CURVES_S = 30.0
STARTS_PER_HOUR = 12
_SLACK = 1.5
"""Times the expected service that is kept until the deadline."""
DEFAULT_SECONDS_PER_TOKEN = 0.05
_MAX_STARTS = 24 * STARTS_PER_HOUR
_MAX_CURVES = 64


@dataclass(frozen=True, slots=True)
class Curve:
    """Least expected g/kWh × PUE among some regions, by time of start; NaN where nothing is known."""

    starts_unix_s: FloatColumn
    grams: FloatColumn

    def best_start(self, latest_unix_s: float) -> float:
        """When to start: the cleanest moment up to the latest, the first of several; now where waiting gains little."""
        now, here = float(self.starts_unix_s[0]), float(self.grams[0])
        if not np.isfinite(here):
            return now
        reachable = np.where(self.starts_unix_s <= latest_unix_s, self.grams, inf)
        best = int(np.nanargmin(reachable))
        return float(self.starts_unix_s[best]) if self.grams[best] < here * (1.0 - LEAST_GAIN) else now


def curve_of(views: Sequence[RegionView | None], now_unix_s: float, longest_s: float) -> Curve:
    """What the forecasts of these regions promise from now on, every five minutes."""
    count = min(int(longest_s / 3600.0 * STARTS_PER_HOUR) + 1, _MAX_STARTS)
    starts: FloatColumn = now_unix_s + np.arange(count, dtype=np.float64) * (3600.0 / STARTS_PER_HOUR)
    grams = np.full((len(views), count), np.nan)
    if np.isfinite(intensities(views, now_unix_s)).any():
        for i, view in enumerate(views):
            grams[i] = _promised(view, starts, now_unix_s)
    known = np.isfinite(grams).any(axis=0)
    least = np.full(count, np.nan)
    least[known] = np.nanmin(grams[:, known], axis=0)
    return Curve(starts, least)


def latest_start_unix_s(waiting: Waiting, now_unix_s: float, longest_wait_s: float) -> float:
    """By when it must leave to be answered in time, and not to be held longer than anybody may."""
    policy = waiting.policy
    tpot = None if policy is None else policy.tpot_slo_seconds
    ttft = None if policy is None else policy.ttft_slo_seconds
    per_token = DEFAULT_SECONDS_PER_TOKEN if tpot is None else tpot
    service_s = (ttft or 0.0) + waiting.llm.expected_output_tokens * per_token
    deadline = inf if waiting.deadline_unix_s is None else waiting.deadline_unix_s - _SLACK * service_s
    return min(deadline, now_unix_s + longest_wait_s)


@dataclass(slots=True, eq=False)
class _Held:
    waiting: Waiting
    since_s: float
    latest_unix_s: float
    regions: frozenset[str] | None
    start_unix_s: float


class DeadlineQueue:
    """Owned by the loop's thread; bounded by `maxRequests`."""

    def __init__(
        self,
        settings: Deadlines,
        when_full: WhenFull,
        *,
        names: Sequence[str],
        views: Callable[[], Mapping[str, RegionView]],
        release: Callable[[Waiting], None],
        monotonic: Callable[[], float],
        unix: Callable[[], float],
    ) -> None:
        """`views` gives grids by region, `release` takes what is to be placed."""
        self._settings = settings
        self._when_full = when_full
        self._names = tuple(names)
        self._views = views
        self._release = release
        self._monotonic = monotonic
        self._unix = unix
        self._held: dict[int, _Held] = {}
        self._curves: dict[frozenset[str] | None, Curve] = {}
        self._planned_s = -inf
        self.ends: Counter[str] = Counter()
        """Requests by why they wait no longer: `planned`, `latest`, `left`, `draining`; and those that never waited:
        `now` (nothing to gain), `full` (placed at once), `refused` (likewise full)."""
        self.held_seconds_total = 0.0

    def __len__(self) -> int:
        return len(self._held)

    def offer(self, waiting: Waiting) -> bool:
        """Hold the request, or release it at once. False: the queue is full and such requests are refused."""
        now_unix_s = self._unix()
        latest = latest_start_unix_s(waiting, now_unix_s, self._settings.longest_wait)
        regions = None if waiting.policy is None else waiting.policy.allowed_regions
        start = self._curve(regions).best_start(latest)
        if start <= now_unix_s:
            self.ends["now"] += 1
        elif len(self._held) < self._settings.max_requests:
            entry = _Held(waiting, self._monotonic(), latest, regions, start)
            self._held[id(waiting.request)] = entry
            return True
        elif self._when_full is WhenFull.REFUSE:
            self.ends["refused"] += 1
            return False
        else:
            self.ends["full"] += 1
        self._release(waiting)
        return True

    def left(self, waiting: Waiting) -> None:
        """Its client has gone."""
        if self._held.pop(id(waiting.request), None) is not None:
            self.ends["left"] += 1

    def look(self) -> None:
        """Release what is due; plan again where forecasts may have moved."""
        now_s, now_unix_s = self._monotonic(), self._unix()
        if now_s - self._planned_s >= PLAN_EVERY_S:
            self.plan()
        for entry in [e for e in self._held.values() if min(e.start_unix_s, e.latest_unix_s) <= now_unix_s]:
            self._let_go(entry, "planned" if entry.start_unix_s <= now_unix_s else "latest")

    def plan(self) -> None:
        """Decide again when each request starts: the grids have news."""
        self._planned_s = self._monotonic()
        self._curves.clear()
        for entry in self._held.values():
            entry.start_unix_s = self._curve(entry.regions).best_start(entry.latest_unix_s)

    def drain(self) -> None:
        """Release everything."""
        for entry in list(self._held.values()):
            self._let_go(entry, "draining")

    async def run(self) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.look()

    def _let_go(self, entry: _Held, why: str) -> None:
        del self._held[id(entry.waiting.request)]
        self.ends[why] += 1
        held_s = self._monotonic() - entry.since_s
        entry.waiting.held_s = held_s
        self.held_seconds_total += held_s
        self._release(entry.waiting)

    def _curve(self, regions: frozenset[str] | None) -> Curve:
        """Of the regions that a request may use; curves are kept until grids have news, or a start has passed."""
        now_unix_s = self._unix()
        curve = self._curves.get(regions)
        if curve is None or now_unix_s - curve.starts_unix_s[0] > KEEP_CURVES_S:
            if len(self._curves) >= _MAX_CURVES:
                self._curves.clear()
            views = self._views()
            mine = [views.get(name) for name in self._names if regions is None or name in regions]
            curve = self._curves[regions] = curve_of(mine, now_unix_s, self._settings.longest_wait)
        return curve


def _promised(view: RegionView | None, starts: FloatColumn, now_unix_s: float) -> FloatColumn:
    if view is None:
        return np.full(len(starts), np.nan)
    signal = view.signal
    values = np.full(len(starts), np.nan)
    present = signal.expected_g_per_kwh(now_unix_s, EXPECTED_SERVICE_S)
    if present is None:
        return values
    values[0] = present
    if signal.forecast is not None:
        for i in range(1, len(starts)):
            mean = signal.forecast.average(float(starts[i]), float(starts[i]) + EXPECTED_SERVICE_S)
            values[i] = np.nan if mean is None else mean
    return values * view.pue
