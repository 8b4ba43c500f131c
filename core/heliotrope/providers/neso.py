"""The Carbon Intensity API of Great Britain's system operator (NESO): half-hours of the nation or of a region."""

from collections.abc import Mapping
from typing import Any

from heliotrope.api.v1alpha1.carbonsource import Neso
from heliotrope.api.v1alpha1.regionprofile import RegionProfileSpec
from heliotrope.carbon.series import Point, Series
from heliotrope.errors import BadAnswerError
from heliotrope.providers.asking import pages
from heliotrope.providers.http import Network, Request, base_url
from heliotrope.providers.interface import Fetched
from heliotrope.providers.points import Meaning, items, member, moment, number, start
from heliotrope.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

SOURCE = "neso"
PERIOD_S = SECONDS_PER_HOUR / 2
HISTORY_PAGE_S = 13 * SECONDS_PER_DAY
"""Below the 14 days that one answer may span."""
_INSIDE_S = 60.0
"""A time that is a period's end belongs to that period, so questions name one inside."""


class NesoProvider:
    """One request a poll: the current half-hour and two days of forecast.

    `actual` is null from now on, and regions have none at all: where it is, the forecast of the half-hour stands for it
    and is flagged as estimated.
    """

    def __init__(self, network: Network, spec: RegionProfileSpec, source: Neso) -> None:
        """The provider of Great Britain or of one of its regions.

        Raises:
            InvalidInputError: if the address is none.
        """
        self._network = network
        self._region = source.region_id
        self._meaning = Meaning.of(SOURCE, spec)
        self._root = base_url(source.base_url, "" if source.region_id is None else "/regional")

    async def fetch(self, now_unix_s: float) -> Fetched:
        """The current half-hour and those ahead.

        Raises:
            SignalUnavailableError: by its subclasses; see `heliotrope.errors`.
        """
        inside = now_unix_s // PERIOD_S * PERIOD_S + _INSIDE_S
        return self._meaning.fetched(await self._ask(f"{_time(inside)}/fw48h"), now_unix_s)

    async def history(self, start_unix_s: float, end_unix_s: float) -> Series:
        """Half-hours of [start, end); of regions the forecasts, which are all there is.

        Raises:
            SignalUnavailableError: if there are none.
        """
        points: list[Point] = []
        for first, last in pages(start_unix_s, end_unix_s, HISTORY_PAGE_S):
            points += await self._ask(f"{_time(first + _INSIDE_S)}/{_time(last)}")
        return self._meaning.past(points, start_unix_s, end_unix_s)

    async def _ask(self, what: str) -> list[Point]:
        place = "" if self._region is None else f"/regionid/{self._region}"
        answer = await self._network.ask(Request(SOURCE, f"{self._root}/intensity/{what}{place}"))
        document = await answer.json()
        if self._region is not None:
            document = self._of_region(member(document, "data", SOURCE))
        found = [_point(each) for each in items(document, "data", SOURCE)]
        return [point for point in found if point is not None]

    def _of_region(self, data: Any) -> Any:
        """What the answer says of the region: one object, or a list of one, as the endpoints differ."""
        regions = data if isinstance(data, list) else [data]
        for region in regions:
            if isinstance(region, Mapping) and region.get("regionid") == self._region:
                return region
        raise BadAnswerError(f"{SOURCE}: the answer says nothing of region {self._region}")


def _point(each: Any) -> Point | None:
    intensity = member(each, "intensity", SOURCE)
    forecast = member(intensity, "forecast", f"{SOURCE}: intensity")
    actual = intensity.get("actual")
    value = forecast if actual is None else actual
    if value is None:
        return None  # a gap
    begins = start(member(each, "from", SOURCE), f"{SOURCE}: from")
    return Point(begins, number(value, f"{SOURCE}: intensity"), estimated=actual is None)


def _time(unix_s: float) -> str:
    return moment(unix_s).strftime("%Y-%m-%dT%H:%MZ")
