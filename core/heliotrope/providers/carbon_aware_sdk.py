"""The WebApi of the Green Software Foundation's Carbon Aware SDK, in front of whatever source it is configured with.

It does not say whether its values are average or marginal (its issue #573): the RegionProfile has to. Nor does it
name locations as it was asked: a cloud region comes back as the grid that its source has for it.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from heliotrope.api.scalars import format_time
from heliotrope.api.v1alpha1.carbonsource import CarbonAwareSdk
from heliotrope.api.v1alpha1.regionprofile import RegionProfileSpec
from heliotrope.carbon.series import Point, Series
from heliotrope.errors import BadAnswerError, NoDataError
from heliotrope.providers.asking import SeldomForecast, pages
from heliotrope.providers.http import Answer, Network, Request, base_url
from heliotrope.providers.interface import Fetched
from heliotrope.providers.points import Meaning, items, member, moment, number, start
from heliotrope.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

SOURCE = "carbonAwareSdk"
BEHIND_S = 3 * SECONDS_PER_HOUR
FORECAST_EVERY_S = 900.0
"""The service caches no forecasts: each question costs one at its own source."""
HISTORY_PAGE_S = 10 * SECONDS_PER_DAY


class CarbonAwareSdkProvider:
    """Asks for the last hours' emissions at each poll and for the forecast four times an hour."""

    def __init__(self, network: Network, spec: RegionProfileSpec, source: CarbonAwareSdk) -> None:
        """A location's provider.

        Raises:
            InvalidInputError: if the address is none.
        """
        self._network = network
        self._location = source.location
        self._meaning = Meaning.of(SOURCE, spec)
        self._root = base_url(source.url, "/emissions")
        self._forecast = SeldomForecast(FORECAST_EVERY_S)

    async def fetch(self, now_unix_s: float) -> Fetched:
        """The newest rating, and the forecast if the service's source has one.

        Raises:
            SignalUnavailableError: by its subclasses; see `heliotrope.errors`.
        """
        points = await self._emissions(now_unix_s - BEHIND_S, now_unix_s)
        begun = [point for point in points if point.time_unix_s <= now_unix_s]
        if not begun:
            raise NoDataError(f"{SOURCE} has no values of the last hours for {self._location}")
        await self._forecast.renew(self._forecast_points, now_unix_s)
        newest = max(begun, key=lambda point: point.time_unix_s)
        forecast = self._forecast
        return self._meaning.fetched(forecast.points, now_unix_s, current=newest, forecast_failure=forecast.failure)

    async def history(self, start_unix_s: float, end_unix_s: float) -> Series:
        """Ratings of [start, end).

        Raises:
            SignalUnavailableError: if there are none.
        """
        points: list[Point] = []
        for first, last in pages(start_unix_s, end_unix_s, HISTORY_PAGE_S):
            points += await self._emissions(first, last)
        return self._meaning.past(points, start_unix_s, end_unix_s)

    async def _emissions(self, start_unix_s: float, end_unix_s: float) -> list[Point]:
        answer = await self._ask(
            "bylocation",
            {"time": format_time(moment(start_unix_s)), "toTime": format_time(moment(end_unix_s))},
        )
        if answer.status == HTTPStatus.NO_CONTENT:
            return []
        document = await answer.json()
        if not isinstance(document, list):
            raise BadAnswerError(f"{SOURCE}: the answer is not a list of emissions")
        return [_point(each, "time", "rating") for each in document]

    async def _forecast_points(self) -> list[Point]:
        answer = await self._ask("forecasts/current", {})
        if answer.status == HTTPStatus.NO_CONTENT:
            raise NoDataError(f"{SOURCE} has no forecast for {self._location}")
        document = await answer.json()
        if not isinstance(document, list) or not document:
            raise BadAnswerError(f"{SOURCE}: the answer is not a list of forecasts")
        return [_point(each, "timestamp", "value") for each in items(document[0], "forecastData", SOURCE)]

    async def _ask(self, endpoint: str, parameters: Mapping[str, str]) -> Answer:
        asked = (("location", self._location), *parameters.items())
        answer = await self._network.get(Request(SOURCE, f"{self._root}/{endpoint}", asked))
        if answer.status != HTTPStatus.NO_CONTENT:
            answer.raise_for_refusal()
        return answer


def _point(each: Any, time: str, value: str) -> Point:
    begins = start(member(each, time, SOURCE), f"{SOURCE}: {time}")
    return Point(begins, number(member(each, value, SOURCE), f"{SOURCE}: {value}"), estimated=None)
