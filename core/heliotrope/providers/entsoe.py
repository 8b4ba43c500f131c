"""The ENTSO-E transparency platform: intensity of a bidding zone's production, from generation per type and factors.

Generation is published an hour or more late and type by type, so the newest market time unit in which a type is still
missing is a gap: without its coal a grid would look clean. Imports and exports do not count.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from http import HTTPStatus

from heliotrope.api.v1alpha1.carbonsource import Entsoe
from heliotrope.api.v1alpha1.regionprofile import RegionProfileSpec
from heliotrope.carbon.series import Point, Series
from heliotrope.errors import NoDataError, ThrottledError
from heliotrope.providers.asking import pages
from heliotrope.providers.entsoe_factors import STORAGE, factors_g_per_kwh
from heliotrope.providers.entsoe_xml import Generated, read_generation
from heliotrope.providers.http import Network, Request, base_url, shown
from heliotrope.providers.interface import Fetched
from heliotrope.providers.points import Meaning, moment
from heliotrope.providers.secrets import Secrets
from heliotrope.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

SOURCE = "entsoe"
WINDOW_S = 12 * SECONDS_PER_HOUR
"""How far back a poll looks. A type that reports anywhere in it has to report in a unit that counts."""
HISTORY_PAGE_S = 14 * SECONDS_PER_DAY
BAN_S = 600.0
"""How long a token is shut out after more than 400 requests in a minute."""
LARGEST_UNKNOWN_SHARE = 0.1
"""Of generation by types without a factor; they count as the mean of the rest."""


class EntsoeProvider:
    """One request a poll; no forecast, for nobody there forecasts the mix."""

    def __init__(self, network: Network, secrets: Secrets, spec: RegionProfileSpec, source: Entsoe) -> None:
        """A bidding zone's provider.

        Raises:
            InvalidInputError: if the address is none.
        """
        self._network = network
        self._secrets = secrets
        self._source = source
        self._meaning = Meaning.of(SOURCE, spec)
        self._url = base_url(source.base_url, "")
        own = {factor.psr_type: factor.grams_per_kwh for factor in source.factors}
        self._factors = dict(factors_g_per_kwh(self._meaning.kind.emission_factor)) | own

    async def fetch(self, now_unix_s: float) -> Fetched:
        """The newest market time unit that is complete.

        Raises:
            SignalUnavailableError: by its subclasses; see `heliotrope.errors`.
        """
        return self._meaning.fetched(await self._ask(now_unix_s - WINDOW_S, now_unix_s), now_unix_s, horizon_s=0.0)

    async def history(self, start_unix_s: float, end_unix_s: float) -> Series:
        """Market time units of [start, end) that are complete.

        Raises:
            SignalUnavailableError: if there are none.
        """
        points: list[Point] = []
        for first, last in pages(start_unix_s, end_unix_s, HISTORY_PAGE_S):
            points += await self._ask(first, last)
        return self._meaning.past(points, start_unix_s, end_unix_s)

    async def _ask(self, start_unix_s: float, end_unix_s: float) -> list[Point]:
        token = (await self._secrets.read(self._source.credentials_secret_ref)).reveal()
        parameters = (
            ("securityToken", token),
            ("documentType", "A75"),
            ("processType", "A16"),
            ("in_Domain", self._source.domain),
            ("periodStart", _time(start_unix_s)),
            ("periodEnd", _time(end_unix_s + SECONDS_PER_HOUR)),
        )
        request = Request(SOURCE, self._url, parameters, secrets=(token,))
        answer = await self._network.get(request)
        if answer.status == HTTPStatus.TOO_MANY_REQUESTS:
            raise ThrottledError(f"{answer.problem()}; the platform shuts a token out for ten minutes", BAN_S)
        if answer.status != HTTPStatus.BAD_REQUEST:  # which an acknowledgement explains
            answer.raise_for_refusal()
        generated = await asyncio.to_thread(read_generation, answer.body, request.shown)
        return intensity(generated, self._factors, shown(self._source.domain, request))


def intensity(generated: Iterable[Generated], factors: Mapping[str, float], zone: str) -> list[Point]:
    """Generation × factor over generation, per market time unit in which every type of the whole reports.

    Types that report in longer units than others count in each of the shorter ones.

    Args:
        generated: as read; of two values of a type and time the later one counts.
        factors: g/kWh by production type.
        zone: named in the error.

    Raises:
        NoDataError: if a type without a factor generates more than a tenth.
    """
    by_type: dict[str, dict[float, Generated]] = defaultdict(dict)
    for each in generated:
        if each.psr_type not in STORAGE:
            by_type[each.psr_type][each.start_unix_s] = each
    reporting = {psr_type: units for psr_type, units in by_type.items() if any(e.megawatts > 0 for e in units.values())}
    if not reporting:
        return []
    step_s = min(each.duration_s for units in reporting.values() for each in units.values())
    power = {psr_type: _in_steps(units.values(), step_s) for psr_type, units in reporting.items()}
    times = sorted(set.intersection(*(set(steps) for steps in power.values())))
    return [_point(time, {name: steps[time] for name, steps in power.items()}, factors, zone) for time in times]


def _in_steps(units: Iterable[Generated], step_s: float) -> dict[float, float]:
    return {
        each.start_unix_s + n * step_s: max(each.megawatts, 0.0)
        for each in units
        for n in range(max(round(each.duration_s / step_s), 1))
    }


def _point(time: float, megawatts: Mapping[str, float], factors: Mapping[str, float], zone: str) -> Point:
    total = sum(megawatts.values())
    known = {name: power for name, power in megawatts.items() if name in factors}
    known_total = sum(known.values())
    if known_total < (1.0 - LARGEST_UNKNOWN_SHARE) * total or known_total == 0.0:
        unknown = sorted(megawatts.keys() - known.keys())
        raise NoDataError(
            f"{SOURCE}: types {', '.join(unknown)} without an emission factor generate much of {zone}; state one in "
            "spec.source.entsoe.factors"
        )
    grams = sum(power * factors[name] for name, power in known.items())
    return Point(time, grams / known_total, estimated=None)


def _time(unix_s: float) -> str:
    """UTC, to the hour that has begun."""
    return moment(unix_s).strftime("%Y%m%d%H00")
