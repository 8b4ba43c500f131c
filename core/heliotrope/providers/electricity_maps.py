"""Electricity Maps, versions 3 and 4: average intensity of a zone or of a cloud provider's region.

Two habits of the API shape this file. Where it finds no place it answers for the caller's own, so it is told not to and
the zone of every answer is compared. And beyond a plan's rate it was seen to answer 401 to a valid token
(electricitymaps-contrib #8047), so a token that has worked before counts as throttled, not as refused.
"""

import contextlib
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from heliotrope.api.scalars import format_time
from heliotrope.api.v1alpha1.carbonsource import ElectricityMaps
from heliotrope.api.v1alpha1.regionprofile import RegionProfileSpec
from heliotrope.carbon.series import Point, Series
from heliotrope.errors import BadAnswerError, NoDataError, ThrottledError
from heliotrope.providers.asking import SeldomForecast, pages
from heliotrope.providers.http import Network, Request, base_url
from heliotrope.providers.interface import Fetched
from heliotrope.providers.points import Meaning, flag, items, member, moment, number, start
from heliotrope.providers.secrets import Secret, Secrets
from heliotrope.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

SOURCE = "electricityMaps"
HORIZONS_HOURS = (6, 24, 48, 72)
"""Lengths of a forecast that can be asked for."""
FORECAST_EVERY_S = 1_800.0
"""Forecasts are made anew each hour; asking at every poll would use up a plan's requests."""
HISTORY_PAGE_S = 10 * SECONDS_PER_DAY
"""Longest span of hours in one answer."""


class ElectricityMapsProvider:
    """Asks for the latest value at each poll and for the forecast twice an hour."""

    def __init__(self, network: Network, secrets: Secrets, spec: RegionProfileSpec, source: ElectricityMaps) -> None:
        """A zone's provider.

        Raises:
            InvalidInputError: if the address is none.
        """
        self._network = network
        self._secrets = secrets
        self._source = source
        self._zone = spec.zone
        self._meaning = Meaning.of(SOURCE, spec)
        self._root = base_url(source.base_url, f"/{source.api_version.value}/carbon-intensity")
        self._worked: Secret | None = None
        self._forecast = SeldomForecast(FORECAST_EVERY_S)

    async def fetch(self, now_unix_s: float) -> Fetched:
        """The latest value, and the forecast where the plan has one.

        Raises:
            SignalUnavailableError: by its subclasses; see `heliotrope.errors`.
        """
        token = await self._secrets.read(self._source.credentials_secret_ref)
        latest = _latest(await self._ask("latest", token, {}))
        current = self._point(latest)
        if self._source.disable_estimations and current.estimated:
            raise NoDataError(f"{SOURCE} has estimated values only, which disableEstimations refuses")
        horizon_hours = self._source.forecast_hours
        if horizon_hours:
            await self._forecast.renew(lambda: self._forecast_points(token), now_unix_s)
        return self._meaning.fetched(
            self._forecast.points,
            now_unix_s,
            current=current,
            horizon_s=horizon_hours * SECONDS_PER_HOUR,
            forecast_failure=self._forecast.failure,
        )

    async def history(self, start_unix_s: float, end_unix_s: float) -> Series:
        """Hourly values of [start, end) as they are known by now, estimates replaced where they were.

        Raises:
            SignalUnavailableError: if there are none; plans differ in how far back they go.
        """
        token = await self._secrets.read(self._source.credentials_secret_ref)
        points: list[Point] = []
        for first, last in pages(start_unix_s, end_unix_s, HISTORY_PAGE_S):
            span = {"start": format_time(moment(first)), "end": format_time(moment(last))}
            with contextlib.suppress(NoDataError):
                document = await self._ask("past-range", token, span)
                points += [self._point(each) for each in items(document, "data", SOURCE) if _has_value(each)]
        if self._source.disable_estimations:
            points = [point for point in points if not point.estimated]
        return self._meaning.past(points, start_unix_s, end_unix_s)

    async def _forecast_points(self, token: Secret) -> list[Point]:
        wanted = self._source.forecast_hours
        horizon_hours = next(hours for hours in HORIZONS_HOURS if hours >= wanted)
        document = await self._ask("forecast", token, {"horizonHours": str(horizon_hours)})
        return [
            Point(start(member(each, "datetime", SOURCE), f"{SOURCE}: datetime"), _intensity(each))
            for each in items(document, "forecast" if "forecast" in document else "data", SOURCE)
            if _has_value(each)
        ]

    async def _ask(self, endpoint: str, token: Secret, parameters: Mapping[str, str]) -> Mapping[str, Any]:
        where = {"zone": self._zone}
        if self._source.data_center is not None:
            place = self._source.data_center
            where = {"dataCenterProvider": place.provider, "dataCenterRegion": place.region}
        asked = where | {
            "emissionFactorType": self._meaning.kind.emission_factor.value,
            "disableCallerLookup": "true",
            **parameters,
        }
        if self._source.disable_estimations and endpoint != "forecast":
            asked["disableEstimations"] = "true"
        request = Request(
            SOURCE,
            f"{self._root}/{endpoint}",
            tuple(asked.items()),
            headers={"auth-token": token.reveal()},
            secrets=(token.reveal(),),
        )
        answer = await self._network.get(request)
        if answer.status == HTTPStatus.UNAUTHORIZED and self._worked == token:
            raise ThrottledError(
                f"{answer.problem()}: the token has worked before, so this is the plan's rate limit, or the token was "
                "withdrawn"
            )
        answer.raise_for_refusal()
        document = await answer.json()
        self._check_zone(document)
        self._worked = token
        return document  # type: ignore[no-any-return]

    def _check_zone(self, document: Any) -> None:
        zone = member(document, "zone", SOURCE)
        if zone != self._zone:
            raise BadAnswerError(
                f"{SOURCE} answered for zone {str(zone)[:64]!r}, but spec.zone is {self._zone!r}; set the zone that is "
                "meant"
            )

    def _point(self, each: Any) -> Point:
        factor = each.get("emissionFactorType") if isinstance(each, Mapping) else None
        wanted = self._meaning.kind.emission_factor.value
        if factor is not None and factor != wanted:
            raise BadAnswerError(f"{SOURCE} answered with {str(factor)[:32]} emissions, asked for {wanted}")
        begins = start(member(each, "datetime", SOURCE), f"{SOURCE}: datetime")
        return Point(begins, _intensity(each), flag(each.get("isEstimated")))


def _latest(document: Mapping[str, Any]) -> Any:
    """The object with the value: the answer itself, or what it holds under `data` in some versions."""
    data = document.get("data", document)
    if isinstance(data, list):
        data = data[-1] if data else {}
    if not _has_value(data):
        raise NoDataError(f"{SOURCE} has no value of now")
    return data


def _has_value(each: Any) -> bool:
    return isinstance(each, Mapping) and each.get("carbonIntensity") is not None


def _intensity(each: Mapping[str, Any]) -> float:
    return number(each["carbonIntensity"], f"{SOURCE}: carbonIntensity")
