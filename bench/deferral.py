"""What deferral saves on recorded grids, with forecasts that are as wrong as a simple one really is.

    uv run python bench/deferral.py [--jobs 60] [--zones ES,GB] [--out build/bench/deferral.json]

Jobs arrive at random hours of 2022 in each zone. Every hour a new forecast is made of what was known by then: each
coming hour is expected to be as it was a day before, and its spread is what such forecasts missed by in the four weeks
before. `plan` decides anew with each of them, as the operator does. Compared are the grams per kWh that the job's hours
turned out to have, against a start on arrival, and the best start that anybody could have known ("oracle").
"""

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from machine import describe

from heliotrope.carbon.forecast.value import CarbonForecast
from heliotrope.carbon.series import Series, unix_seconds
from heliotrope.scale.deferral import Rules, Work, latest_start, plan

DATA = Path(__file__).parents[1] / "data"
HOUR = 3600.0
DAY, AHEAD, WEEKS = 24, 36, 28 * 24
"""Hours of a day, of a forecast, and of the past that its spread is measured on."""
DURATIONS = (1, 4, 8)
SLACKS = (6, 12, 24)
"""Hours that a job runs, and hours that it may wait."""
SIGMAS = (0.0, 0.5, 1.0, 1.5)
GAINS = (0.0, 0.03, 0.1)


class Zone:
    """A year of a zone, and the forecasts that could have been made in it."""

    def __init__(self, name: str, times: list[float], values: list[float]) -> None:
        self.name = name
        self.times = times
        self.values = np.array(values)
        self.truth = Series(tuple(times), tuple(values), (None,) * len(times), HOUR)
        self._forecasts: dict[int, CarbonForecast] = {}
        self._missed = {lag: self.values[lag:] - self.values[:-lag] for lag in (DAY, 2 * DAY)}

    def forecast(self, hour: int) -> CarbonForecast:
        """Made in this hour, whose value is known."""
        if hour not in self._forecasts:
            lags = [0] + [DAY * (1 + (ahead - 1) // DAY) for ahead in range(1, AHEAD)]
            expected = [float(self.values[hour + ahead - lag]) for ahead, lag in enumerate(lags)]
            bounds = {0: (0.0, 0.0)}
            for lag, missed in self._missed.items():
                past = missed[hour - WEEKS - lag : hour - lag]
                low, high = np.quantile(past, (0.1, 0.9))
                bounds[lag] = min(float(low), 0.0), max(float(high), 0.0)
            lower = [max(value + bounds[lag][0], 0.0) for value, lag in zip(expected, lags, strict=True)]
            upper = [value + bounds[lag][1] for value, lag in zip(expected, lags, strict=True)]
            self._forecasts[hour] = CarbonForecast.of(
                self.times[hour : hour + AHEAD],
                expected,
                lower,
                upper,
                issued_unix_s=self.times[hour],
                source="as yesterday",
            )
        return self._forecasts[hour]

    def grams_per_kwh(self, start_unix_s: float, hours: int) -> float:
        """What a job that starts then turns out to emit."""
        mean = self.truth.average(start_unix_s, start_unix_s + hours * HOUR)
        assert mean is not None
        return mean


def zones() -> Iterator[Zone]:
    """Every zone of the repository with a year of hourly values."""
    seen = set()
    for path in sorted((DATA / "electricitymaps-umass").glob("*.csv")) + sorted((DATA / "carbon").glob("*.csv")):
        header, *rows = (line.split(",") for line in path.read_text().splitlines())
        columns = header[1:] if path.parent.name != "carbon" else ["ci_lifecycle"]
        for column in columns:
            name = column if path.parent.name != "carbon" else path.stem
            index = header.index(column)
            known = [(unix_seconds(row[0]), float(row[index])) for row in rows if row[index]][:8_759]
            if name not in seen and len(known) == 8_759:
                seen.add(name)
                yield Zone(name, [time for time, _ in known], [value for _, value in known])


def started(zone: Zone, work: Work, rules: Rules, arrival: int) -> tuple[float, int]:
    """When the job starts if it is decided anew each hour and at the planned start, and how often the plan moved."""
    now, planned, moves = work.arrived_unix_s, None, 0
    while True:
        hour = arrival + int((now - work.arrived_unix_s) // HOUR)
        found = plan(work, rules, zone.forecast(hour), now, planned)
        if found.start:
            return now, moves
        moves += planned is not None and planned != found.planned_unix_s
        planned = found.planned_unix_s
        now = min(work.arrived_unix_s + (hour + 1 - arrival) * HOUR, planned, found.latest_unix_s)


def oracle(zone: Zone, work: Work, rules: Rules, hours: int) -> float:
    """The least grams per kWh that any start on a quarter of an hour could have had."""
    latest, _ = latest_start(work, rules)
    starts = np.arange(work.arrived_unix_s, latest + 1.0, HOUR / 4)
    return min(zone.grams_per_kwh(float(start), hours) for start in starts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=60, help="jobs for each zone, duration and slack")
    parser.add_argument("--zones", default="", help="only these, with commas between")
    parser.add_argument("--out", type=Path, default=Path("build/bench/deferral.json"))
    options = parser.parse_args()
    wanted = set(filter(None, options.zones.split(",")))
    base = Rules(longest_delay_s=48 * HOUR, safety_margin_s=0.5 * HOUR)
    variants = {"default": base} | {
        f"sigmas {sigmas}, least gain {gain}": replace(base, sigmas=sigmas, least_gain=gain)
        for sigmas in SIGMAS
        for gain in GAINS
    }
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    by_zone: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    late = 0
    for zone in zones():
        if wanted and zone.name not in wanted:
            continue
        rng = random.Random(zone.name)
        for duration in DURATIONS:
            for slack in SLACKS:
                for _ in range(options.jobs):
                    arrival = rng.randrange(WEEKS + 2 * DAY, len(zone.times) - 4 * DAY)
                    at = zone.times[arrival]
                    work = Work(at, duration * HOUR, duration * HOUR, at + (duration + slack + 0.5) * HOUR)
                    now = zone.grams_per_kwh(at, duration)
                    best = oracle(zone, work, base, duration)
                    for name, rules in variants.items():
                        start, moves = started(zone, work, rules, arrival)
                        late += start > latest_start(work, rules)[0]
                        grams = zone.grams_per_kwh(start, duration)
                        for group in (sums[name], *([by_zone[zone.name]] if name == "default" else [])):
                            group["now"] += now
                            group["oracle"] += best
                            group["deferral"] += grams
                            group["wait_hours"] += (start - at) / HOUR
                            group["moves"] += moves
                            group["waited"] += start > at
                            group["worse"] += grams > now
                            group["jobs"] += 1
    report = {
        "machine": describe(),
        "rules": asdict(base),
        "jobs": int(sums["default"]["jobs"]),
        "started_after_their_limit": late,
        "variants": {name: summary(group) for name, group in sums.items()},
        "zones": {name: summary(group) for name, group in sorted(by_zone.items())},
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=2) + "\n")
    for name, row in {**report["variants"], **report["zones"]}.items():
        print(f"{name:<32}" + "".join(f" {key} {value:>8.4f}" for key, value in row.items()))
    print(f"{report['jobs']} jobs, {late} of them late; written to {options.out}")


def summary(group: dict[str, float]) -> dict[str, float]:
    """Shares of the grams of a start on arrival, and means over jobs."""
    saved, most = group["now"] - group["deferral"], group["now"] - group["oracle"]
    return {
        "saving": saved / group["now"],
        "oracle_saving": most / group["now"],
        "share_of_oracle": saved / most if most > 0 else 1.0,
        "mean_wait_hours": group["wait_hours"] / group["jobs"],
        "waited_share": group["waited"] / group["jobs"],
        "worse_share": group["worse"] / group["jobs"],
        "plan_moves_per_job": group["moves"] / group["jobs"],
    }


if __name__ == "__main__":
    main()
