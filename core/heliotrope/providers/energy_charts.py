"""Energy-Charts of Fraunhofer ISE: quarter-hours of European countries, measured and forecast, without a key."""

from itertools import zip_longest
from typing import Any

from heliotrope.api.v1alpha1.carbonsource import EnergyCharts
from heliotrope.api.v1alpha1.regionprofile import RegionProfileSpec
from heliotrope.carbon.series import Point, Series
from heliotrope.errors import BadAnswerError
from heliotrope.providers.asking import pages
from heliotrope.providers.http import Network, Request, base_url
from heliotrope.providers.interface import Fetched
from heliotrope.providers.points import Meaning, items, moment, number, unix_time
from heliotrope.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

SOURCE = "energyCharts"
BEHIND_S = 3 * SECONDS_PER_HOUR
AHEAD_S = 2 * SECONDS_PER_DAY
HISTORY_PAGE_S = 30 * SECONDS_PER_DAY


class EnergyChartsProvider:
    """One request a poll. Measured values are null from a while before now on; the forecast stands there."""

    def __init__(self, network: Network, spec: RegionProfileSpec, source: EnergyCharts) -> None:
        """A country's provider.

        Raises:
            InvalidInputError: if the address is none.
        """
        self._network = network
        self._country = source.country
        self._meaning = Meaning.of(SOURCE, spec)
        self._url = base_url(source.base_url, "/co2eq")

    async def fetch(self, now_unix_s: float) -> Fetched:
        """The current quarter of an hour and those ahead.

        Raises:
            SignalUnavailableError: by its subclasses; see `heliotrope.errors`.
        """
        return self._meaning.fetched(await self._ask(now_unix_s - BEHIND_S, now_unix_s + AHEAD_S), now_unix_s)

    async def history(self, start_unix_s: float, end_unix_s: float) -> Series:
        """Quarter-hours of [start, end), measured where they are.

        Raises:
            SignalUnavailableError: if there are none.
        """
        points: list[Point] = []
        for first, last in pages(start_unix_s, end_unix_s, HISTORY_PAGE_S):
            points += await self._ask(first, last)
        return self._meaning.past(points, start_unix_s, end_unix_s)

    async def _ask(self, start_unix_s: float, end_unix_s: float) -> list[Point]:
        parameters = (("country", self._country), ("start", _time(start_unix_s)), ("end", _time(end_unix_s)))
        answer = await self._network.ask(Request(SOURCE, self._url, parameters))
        document = await answer.json()
        times, measured = items(document, "unix_seconds", SOURCE), items(document, "co2eq", SOURCE)
        forecast = items(document, "co2eq_forecast", SOURCE) if document.get("co2eq_forecast") is not None else []
        if len(measured) > len(times) or len(forecast) > len(times):
            raise BadAnswerError(f"{SOURCE}: the answer has more values than times")
        rows = zip_longest(times, measured, forecast)
        return [point for row in rows if (point := _point(*row)) is not None]


def _point(time: Any, measured: Any, forecast: Any) -> Point | None:
    value = forecast if measured is None else measured
    if value is None:
        return None  # a gap
    begins = unix_time(time, f"{SOURCE}: unix_seconds")
    return Point(begins, number(value, f"{SOURCE}: intensity"), estimated=measured is None)


def _time(unix_s: float) -> str:
    return moment(unix_s).strftime("%Y-%m-%dT%H:%MZ")
