"""WattTime, version 3: the absolute marginal operating emissions rate (co2_moer).

The value of now is the first point of the forecast, which WattTime documents as the source of real-time absolute
values. `signal-index` is never asked: it is a percentile of a region's own next day, so it says nothing of grams and
cannot be compared between regions; an answer in percentiles is refused.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from heliotrope.api.scalars import format_time
from heliotrope.api.v1alpha1.carbonsource import WattTime
from heliotrope.api.v1alpha1.regionprofile import RegionProfileSpec
from heliotrope.carbon.series import Point, Series
from heliotrope.errors import BadAnswerError, CredentialsRefusedError, NoDataError
from heliotrope.providers.asking import pages
from heliotrope.providers.http import Answer, Network, Request, base_url, secret_values
from heliotrope.providers.interface import Fetched
from heliotrope.providers.points import MAX_G_PER_KWH, Meaning, items, member, moment, number, start
from heliotrope.providers.secrets import Secret, Secrets, basic, bearer, secret_of
from heliotrope.units import SECONDS_PER_DAY, SECONDS_PER_HOUR, g_per_kwh_from_lb_per_mwh

SOURCE = "wattTime"
SIGNAL = "co2_moer"
UNITS = "lbs_co2_per_mwh"
MAX_POUNDS_PER_MWH = MAX_G_PER_KWH / g_per_kwh_from_lb_per_mwh(1.0)
HISTORY_PAGE_S = 30 * SECONDS_PER_DAY
"""Longest span that WattTime's own client asks for at once."""
REFUSED_HOLD_S = 60.0
"""A refused login is not tried again sooner: all regions of an account share its limit of 100 logins in 5 minutes."""
_LOGINS_HELD = 16


@dataclass(frozen=True, slots=True)
class Account:
    """Who logs in where."""

    root: str
    user: Secret
    password: Secret


@dataclass(slots=True)
class _Login:
    lock: asyncio.Lock
    token: Secret | None = None
    refusal: CredentialsRefusedError | None = None
    refused_unix_s: float = 0.0


class Logins:
    """Tokens of accounts, which the regions of a process share; they hold for half an hour and are renewed on a 401."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._logins: dict[str, _Login] = {}

    async def token(self, account: Account, now_unix_s: float, refused: Secret | None = None) -> Secret:
        """The account's token, other than one that was refused.

        Raises:
            CredentialsRefusedError: if user and password are; the same ones are not sent again for a minute.
            SignalUnavailableError: if nobody answers.
        """
        login = self._of(account)
        async with login.lock:
            if login.token is not None and login.token != refused:
                return login.token
            if login.refusal is not None and 0.0 <= now_unix_s - login.refused_unix_s < REFUSED_HOLD_S:
                raise login.refusal
            login.token = None
            try:
                login.token = await self._log_in(account)
            except CredentialsRefusedError as error:
                login.refusal, login.refused_unix_s = error.with_traceback(None), now_unix_s
                raise
            login.refusal = None
            return login.token

    async def _log_in(self, account: Account) -> Secret:
        authorization = basic(account.user, account.password, SOURCE)
        request = Request(
            SOURCE,
            f"{account.root}/login",
            headers={"Authorization": authorization},
            secrets=secret_values([authorization]),
        )
        answer = await self._network.ask(request)
        token = member(await answer.json(), "token", f"{SOURCE} login")
        if not isinstance(token, str):
            raise BadAnswerError(f"{SOURCE}: the token of the login is no text")
        return secret_of(token.encode(), f"{SOURCE}: the token of the login")

    def _of(self, account: Account) -> _Login:
        """By a digest, so that no key of a table is a password."""
        texts = (account.root, account.user.reveal(), account.password.reveal())
        key = hashlib.sha256("\0".join(texts).encode()).hexdigest()
        if key not in self._logins:
            while len(self._logins) >= _LOGINS_HELD:
                del self._logins[next(iter(self._logins))]
            self._logins[key] = _Login(asyncio.Lock())
        return self._logins[key]


class WattTimeProvider:
    """Asks for the forecast at each poll; its first point is now."""

    def __init__(
        self, network: Network, secrets: Secrets, logins: Logins, spec: RegionProfileSpec, source: WattTime
    ) -> None:
        """A balancing authority's provider.

        Raises:
            InvalidInputError: if the address is none.
        """
        self._network = network
        self._secrets = secrets
        self._logins = logins
        self._source = source
        self._region = spec.zone
        self._meaning = Meaning.of(SOURCE, spec)
        self._root = base_url(source.base_url, "")

    async def fetch(self, now_unix_s: float) -> Fetched:
        """The marginal rate of now and the forecast.

        Raises:
            SignalUnavailableError: by its subclasses; see `heliotrope.errors`.
        """
        hours = self._source.forecast_hours
        document = await self._ask("forecast", {"horizon_hours": str(hours)}, now_unix_s)
        points = _points(document)
        if not points:
            raise NoDataError(f"{SOURCE} has no value of now for {self._region}")
        return self._meaning.fetched(points, now_unix_s, horizon_s=hours * SECONDS_PER_HOUR)

    async def history(self, start_unix_s: float, end_unix_s: float) -> Series:
        """Five-minute values of [start, end) as they are known by now.

        Raises:
            SignalUnavailableError: if there are none.
        """
        points: list[Point] = []
        for first, last in pages(start_unix_s, end_unix_s, HISTORY_PAGE_S):
            span = {"start": format_time(moment(first)), "end": format_time(moment(last))}
            with contextlib.suppress(NoDataError):
                document = await self._ask("historical", span | {"include_imputed_marker": "true"}, end_unix_s)
                points += _points(document)
        return self._meaning.past(points, start_unix_s, end_unix_s)

    async def _ask(self, endpoint: str, parameters: Mapping[str, str], now_unix_s: float) -> Any:
        account = Account(
            self._root,
            await self._secrets.read(self._source.username_secret_ref),
            await self._secrets.read(self._source.password_secret_ref),
        )
        token = await self._logins.token(account, now_unix_s)
        answer = await self._get(endpoint, parameters, token)
        if answer.status == HTTPStatus.UNAUTHORIZED:
            token = await self._logins.token(account, now_unix_s, refused=token)
            answer = await self._get(endpoint, parameters, token)
        answer.raise_for_refusal()
        document = await answer.json()
        self._check(member(document, "meta", SOURCE))
        return document

    async def _get(self, endpoint: str, parameters: Mapping[str, str], token: Secret) -> Answer:
        asked = {"region": self._region, "signal_type": SIGNAL, **parameters}
        authorization = bearer(token)
        return await self._network.get(
            Request(
                SOURCE,
                f"{self._root}/v3/{endpoint}",
                tuple(asked.items()),
                headers={"Authorization": authorization},
                secrets=secret_values([authorization]),
            )
        )

    def _check(self, meta: Any) -> None:
        """Refuse another region's values, another signal and another unit."""
        expected = {"region": self._region, "signal_type": SIGNAL, "units": UNITS}
        for name, wanted in expected.items():
            found = member(meta, name, f"{SOURCE} meta")
            if found == "percentile":
                raise BadAnswerError(
                    f"{SOURCE} answered with a percentile, which says nothing of grams and has no unit"
                )
            if found != wanted:
                raise BadAnswerError(f"{SOURCE} answered with {name} {str(found)[:64]!r}, asked for {wanted!r}")


def _points(document: Any) -> list[Point]:
    found = []
    for each in items(document, "data", SOURCE):
        if not isinstance(each, Mapping) or each.get("value") is None:
            continue  # a gap
        pounds = number(each["value"], f"{SOURCE}: value", most=MAX_POUNDS_PER_MWH)
        begins = start(member(each, "point_time", SOURCE), f"{SOURCE}: point_time")
        imputed = each.get("imputed_data_used")
        found.append(Point(begins, g_per_kwh_from_lb_per_mwh(pounds), imputed if isinstance(imputed, bool) else None))
    return found
