"""One server that speaks the APIs of all carbon sources, from one truth: a grid's intensity at every time.

Each API has its own folder of the address. Shapes are those of ../shared/reference and of the vendors' documentation:
who estimates, what is null ahead of now, what an empty answer looks like, and how each refuses.
"""

import base64
import contextlib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from tests.support.upstream import Asked, Reply, Upstream, of_json, upstream

HALF_HOUR_S, HOUR_S, QUARTER_S, FIVE_MINUTES_S = 1_800.0, 3_600.0, 900.0, 300.0
EM_TOKEN = "em-secret-token"
WT_USER, WT_PASSWORD = "wt-user", "wt-pass/word+1"
ENTSOE_TOKEN = "entsoe-0000-secret"
PROMETHEUS_TOKEN = "prometheus-secret-token"
POUNDS_PER_GRAM = 1 / 0.45359237


def iso(unix_s: float, timespec: str = "milliseconds") -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


def unix(text: str) -> float:
    return datetime.fromisoformat(text).astimezone(UTC).timestamp()


class CarbonApis:
    """What the server knows, and how it behaves; everything may be changed while it runs."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.truth: Callable[[float], float | None] = lambda _: 250.0
        """g/kWh at a time; None: a gap."""
        self.zone = "ES"
        self.estimated_for_s = 2 * HOUR_S
        """Electricity Maps: how long a value stays an estimate."""
        self.em_token = EM_TOKEN
        self.em_plan_has_forecast = True
        self.wt_password = WT_PASSWORD
        self.wt_tokens = 0
        """Logins so far; only the newest token holds."""
        self.wt_meta: dict[str, Any] = {}
        self.entsoe_token = ENTSOE_TOKEN
        self.entsoe_lag_s = HOUR_S
        self.prometheus_token: str | None = None
        self.prometheus: list[dict[str, Any]] | None = None
        self.override: dict[str, Callable[[Asked], Reply | None]] = {}
        """By folder: answers before the API does; None lets it."""
        self._server: Upstream | None = None

    @property
    def url(self) -> str:
        assert self._server is not None
        return self._server.url

    @property
    def asked(self) -> list[Asked]:
        assert self._server is not None
        return self._server.asked

    def paths(self) -> list[str]:
        return [asked.path for asked in self.asked]

    def fail(self, folder: str, reply: Reply | None) -> None:
        """From now on a folder answers this; None: as it should."""
        if reply is None:
            self.override.pop(folder, None)
        else:
            self.override[folder] = lambda _: reply

    def answer(self, asked: Asked) -> Reply:
        _, folder, *rest = asked.path.split("/")
        override = self.override.get(folder)
        if override is not None and (reply := override(asked)) is not None:
            return reply
        apis = {
            "em": self._electricity_maps,
            "wt": self._watt_time,
            "neso": self._neso,
            "ec": self._energy_charts,
            "entsoe": self._entsoe,
            "sdk": self._sdk,
            "prom": self._prometheus,
        }
        return apis[folder](rest, asked) if folder in apis else Reply(404)

    # Electricity Maps

    def _em_point(self, time: float) -> dict[str, Any]:
        estimated = self.now() - time < self.estimated_for_s
        return {
            "zone": self.zone,
            "carbonIntensity": self.truth(time),
            "datetime": iso(time),
            "updatedAt": iso(self.now()),
            "createdAt": iso(time),
            "emissionFactorType": "lifecycle",
            "isEstimated": estimated,
            "estimationMethod": "TIME_SLICER_AVERAGE" if estimated else None,
            "temporalGranularity": "hourly",
        }

    def _electricity_maps(self, rest: list[str], asked: Asked) -> Reply:
        if rest[:2] not in (["v3", "carbon-intensity"], ["v4", "carbon-intensity"]):
            return Reply(404)
        if asked.headers.get("auth-token") != self.em_token:
            return of_json({"error": "Invalid auth-token"}, 401)
        caller = "XX-CALLER"  # where no place is found, the API answers for the caller's own
        zone, place = asked.one("zone"), asked.one("dataCenterRegion")
        found = self.zone if zone == self.zone or place is not None else caller
        if found == caller and asked.one("disableCallerLookup") == "true":
            return of_json({"status": "error", "message": f"Zone '{zone}' does not exist."}, 404)
        hour = self.now() // HOUR_S * HOUR_S
        match rest[2]:
            case "latest":
                return of_json(self._em_point(hour) | {"zone": found})
            case "past-range":
                first, last = unix(asked.one("start") or ""), unix(asked.one("end") or "")
                if last - first > 10 * 24 * HOUR_S:
                    return of_json({"status": "error", "message": "range is too long"}, 400)
                data = [self._em_point(time) for time in _steps(first, last, HOUR_S) if self.truth(time) is not None]
                return of_json({"zone": found, "data": data, "temporalGranularity": "hourly"})
            case "forecast" if self.em_plan_has_forecast:
                hours = int(asked.one("horizonHours") or "24")
                ahead = [
                    {"carbonIntensity": self.truth(time), "datetime": iso(time)}
                    for time in _steps(hour, hour + hours * HOUR_S, HOUR_S)
                ]
                return of_json({"zone": found, "updatedAt": iso(self.now()), "forecast": ahead})
            case "forecast":
                return of_json({"error": "Your plan does not include this endpoint"}, 403)
        return Reply(404)

    # WattTime

    def _watt_time(self, rest: list[str], asked: Asked) -> Reply:
        if rest == ["login"]:
            given = f"{WT_USER}:{self.wt_password}".encode()
            if asked.headers.get("authorization") != f"Basic {base64.b64encode(given).decode()}":
                return of_json({"error": "unauthorized"}, 403)
            self.wt_tokens += 1
            return of_json({"token": f"wt-token-{self.wt_tokens}"})
        if asked.headers.get("authorization") != f"Bearer wt-token-{self.wt_tokens}":
            return of_json({"detail": "Invalid authentication credentials"}, 401)
        meta = {
            "region": self.zone,
            "signal_type": "co2_moer",
            "units": "lbs_co2_per_mwh",
            "data_point_period_seconds": 300,
            "model": {"date": "2023-03-01"},
            "warnings": [],
            "generated_at": iso(self.now(), "seconds"),
            "generated_at_period_seconds": 300,
        } | self.wt_meta
        if asked.one("region") != self.zone:
            return of_json({"error": "INVALID_SCOPE", "message": "Your account lacks this region"}, 403)
        now = self.now() // FIVE_MINUTES_S * FIVE_MINUTES_S
        match rest:
            case ["v3", "forecast"]:
                hours = float(asked.one("horizon_hours") or "24")
                times = [*_steps(now, now + max(hours * HOUR_S, 1.0), FIVE_MINUTES_S)]
            case ["v3", "historical"]:
                times = [*_steps(unix(asked.one("start") or ""), unix(asked.one("end") or ""), FIVE_MINUTES_S)]
            case ["v3", "signal-index"]:
                return of_json(
                    {"data": [{"point_time": iso(now), "value": 40}], "meta": meta | {"units": "percentile"}}
                )
            case _:
                return Reply(404)
        data = [
            {"point_time": iso(time, "seconds"), "value": value * POUNDS_PER_GRAM}
            for time in times
            if (value := self.truth(time)) is not None
        ]
        return of_json({"data": data, "meta": meta})

    # NESO

    def _neso(self, rest: list[str], asked: Asked) -> Reply:
        regional = rest[0] == "regional"
        rest = rest[1:] if regional else rest
        if rest[0] != "intensity":
            return Reply(404)
        first = unix(rest[1])
        # A time on a border belongs to the half-hour that ends there.
        first = (first - 1.0) // HALF_HOUR_S * HALF_HOUR_S
        last = first + 48 * HOUR_S if rest[2] == "fw48h" else unix(rest[2])
        if last - first > 14 * 24 * HOUR_S:
            return of_json({"error": {"code": "400 Bad Request", "message": "at most 14 days"}}, 400)
        rows = []
        for time in _steps(first, last, HALF_HOUR_S):
            value = self.truth(time)
            past = time + HALF_HOUR_S <= self.now()
            intensity: dict[str, Any] = {"forecast": None if value is None else round(value + 5.0 * past)}
            if not regional:
                intensity["actual"] = round(value) if past and value is not None else None
            rows.append(
                {
                    "from": iso(time, "minutes"),
                    "to": iso(time + HALF_HOUR_S, "minutes"),
                    "intensity": intensity | {"index": "moderate"},
                }
            )
        if not regional:
            return of_json({"data": rows})
        region = int(rest[rest.index("regionid") + 1])
        return of_json({"data": {"regionid": region, "dnoregion": "UKPN", "shortname": "x", "data": rows}})

    # Energy-Charts

    def _energy_charts(self, rest: list[str], asked: Asked) -> Reply:
        if rest != ["co2eq"] or asked.one("country") != "de":
            return of_json({"detail": "Not Found"}, 404)
        first, last = unix(asked.one("start") or ""), unix(asked.one("end") or "")
        times = [*_steps(first, last, QUARTER_S)]
        measured = [self.truth(time) if time <= self.now() - HOUR_S else None for time in times]
        forecast = [self.truth(time) if time > self.now() - HOUR_S else None for time in times]
        return of_json(
            {
                "unix_seconds": [int(time) for time in times],
                "co2eq": measured,
                "co2eq_forecast": forecast,
                "deprecated": False,
            }
        )

    # ENTSO-E

    def _entsoe(self, rest: list[str], asked: Asked) -> Reply:
        if rest != ["api"]:
            return Reply(404)
        if asked.one("securityToken") != self.entsoe_token:
            return Reply(401, f"<html>Invalid token {asked.one('securityToken')}</html>".encode())
        first, last = (
            datetime.strptime(asked.one(name) or "", "%Y%m%d%H%M").replace(tzinfo=UTC).timestamp()
            for name in ("periodStart", "periodEnd")
        )
        last = min(last, (self.now() - self.entsoe_lag_s) // HOUR_S * HOUR_S)
        times = [*_steps(first, last, HOUR_S)]
        if not times:
            return acknowledgement("999", "No matching data found for Data item")
        # Gas and wind in the shares that give the truth with the factors 490 and 11.
        gas = [round(1_000 * ((self.truth(time) or 0.0) - 11.0) / (490.0 - 11.0), 9) for time in times]
        wind = [1_000.0 - power for power in gas]
        return generation(
            time_series("B04", first, last, "PT60M", gas),
            time_series("B19", first, last, "PT60M", wind),
            time_series("B10", first, last, "PT60M", [50.0] * len(times), out=True),
        )

    # Carbon Aware SDK

    def _sdk(self, rest: list[str], asked: Asked) -> Reply:
        if rest == ["emissions", "bylocation"]:
            first, last = unix(asked.one("time") or ""), unix(asked.one("toTime") or "")
            times = _steps(first // FIVE_MINUTES_S * FIVE_MINUTES_S, last + 1.0, FIVE_MINUTES_S)
            found = [
                {"location": "PJM_ROANOKE", "time": iso(time, "seconds"), "rating": value, "duration": "00:05:00"}
                for time in times
                if (value := self.truth(time)) is not None
            ]
            return of_json(found) if found else Reply(204)
        if rest == ["emissions", "forecasts", "current"]:
            now = self.now() // FIVE_MINUTES_S * FIVE_MINUTES_S
            data = [
                {"location": "PJM_ROANOKE", "timestamp": iso(time, "seconds"), "duration": 5, "value": self.truth(time)}
                for time in _steps(now + FIVE_MINUTES_S, now + 24 * HOUR_S, FIVE_MINUTES_S)
            ]
            return of_json([{"generatedAt": iso(now), "location": asked.one("location"), "forecastData": data}])
        return Reply(404)

    # Prometheus

    def _prometheus(self, rest: list[str], asked: Asked) -> Reply:
        if (
            self.prometheus_token is not None
            and asked.headers.get("authorization") != f"Bearer {self.prometheus_token}"
        ):
            return Reply(401, b"Unauthorized")
        if rest != ["api", "v1", "query"]:
            return Reply(404)
        labels = {"__name__": "grid_intensity_carbon_average", "location": "ES", "units": "gCO2e per kWh"}
        series = self.prometheus or [{"metric": labels, "taken": self.now() - 30.0, "value": self.truth(self.now())}]
        query = asked.one("query") or ""
        result = []
        for each in series:
            metric = dict(each["metric"])
            value = each["value"]
            if query.startswith("timestamp("):
                metric.pop("__name__", None)
                value = each["taken"]
            result.append({"metric": metric, "value": [self.now(), str(value)]})
        return of_json({"status": "success", "data": {"resultType": "vector", "result": result}})


@contextlib.contextmanager
def carbon_apis(now: Callable[[], float]) -> Iterator[CarbonApis]:
    """A running server."""
    apis = CarbonApis(now)
    with upstream(apis.answer) as server:
        apis._server = server
        yield apis


def generation(*series: str) -> Reply:
    """A GL_MarketDocument."""
    body = "".join(series)
    return Reply(
        200,
        f'<?xml version="1.0" encoding="UTF-8"?><GL_MarketDocument '
        f'xmlns="urn:iec62325.351:tc57wg16:451-6:generationloaddocument:3:0"><type>A75</type>{body}'
        "</GL_MarketDocument>".encode(),
        {"Content-Type": "text/xml"},
    )


def time_series(
    psr_type: str,
    start: float,
    end: float,
    resolution: str,
    values: Sequence[float | None],
    *,
    out: bool = False,
    curve: str = "A01",
    unit: str = "MAW",
) -> str:
    """One production type's TimeSeries; None leaves a position out."""
    domain = "outBiddingZone_Domain" if out else "inBiddingZone_Domain"
    points = "".join(
        f"<Point><position>{position}</position><quantity>{value}</quantity></Point>"
        for position, value in enumerate(values, start=1)
        if value is not None
    )
    return (
        f'<TimeSeries><{domain}.mRID codingScheme="A01">10YES-REE------0</{domain}.mRID>'
        f"<quantity_Measure_Unit.name>{unit}</quantity_Measure_Unit.name><curveType>{curve}</curveType>"
        f"<MktPSRType><psrType>{psr_type}</psrType></MktPSRType><Period><timeInterval>"
        f"<start>{iso(start, 'minutes')}</start><end>{iso(end, 'minutes')}</end></timeInterval>"
        f"<resolution>{resolution}</resolution>{points}</Period></TimeSeries>"
    )


def acknowledgement(code: str, text: str, status: int = 200) -> Reply:
    """What ENTSO-E answers instead of data."""
    body = (
        '<?xml version="1.0" encoding="UTF-8"?><Acknowledgement_MarketDocument '
        'xmlns="urn:iec62325.351:tc57wg16:451-1:acknowledgementdocument:7:0">'
        f"<Reason><code>{code}</code><text>{text}</text></Reason></Acknowledgement_MarketDocument>"
    )
    return Reply(status, body.encode(), {"Content-Type": "text/xml"})


def _steps(first: float, last: float, step_s: float) -> Iterator[float]:
    """Multiples of a step in [first, last)."""
    time = -(-first // step_s) * step_s
    while time < last:
        yield time
        time += step_s
