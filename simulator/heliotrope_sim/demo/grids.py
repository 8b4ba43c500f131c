"""The carbon intensity that each region shows during an arm, for the meter and for the picker."""

import csv
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from heliotrope.carbon.series import Point, Replay, Series, unix_seconds
from heliotrope.units import SECONDS_PER_HOUR
from heliotrope_sim.data import data_file
from heliotrope_sim.demo.scenario import Region, Scenario


def series_on_the_wall(scenario: Scenario, wall_start_unix_s: float) -> Mapping[str, Series]:
    """Each region's series with its times moved onto the wall clock of an arm."""
    replay = Replay(scenario.series_start_unix_s, wall_start_unix_s, scenario.speed)
    return {region.name: _recorded(region, scenario, replay) for region in scenario.regions}


def region_documents(scenario: Scenario, wall_start_unix_s: float) -> list[dict[str, Any]]:
    """RegionProfiles that make the picker see the same values."""
    return [
        {
            "apiVersion": "heliotrope.io/v1alpha1",
            "kind": "RegionProfile",
            "metadata": {"name": region.name},
            "spec": {
                "zone": region.zone,
                "source": _source(region, scenario, wall_start_unix_s),
                "pollInterval": "1s",
                "staleAfter": "2h",
                "pue": f"{region.pue:g}",
            },
        }
        for region in scenario.regions
    ]


def _recorded(region: Region, scenario: Scenario, replay: Replay) -> Series:
    if scenario.constant_intensities is not None:
        value = scenario.constant_intensities[region.name]
        return Series.from_points([Point(replay.wall_start_unix_s - 60.0, value)], last_holds_s=SECONDS_PER_HOUR)
    first = scenario.series_start_unix_s - SECONDS_PER_HOUR
    last = first + (scenario.series_hours + 4) * SECONDS_PER_HOUR
    points = []
    with data_file(region.series_file).open(newline="") as file:
        for row in csv.DictReader(file):
            time = unix_seconds(row["datetime_utc"])
            if first <= time <= last:
                points.append(Point(time, float(row["ci_lifecycle"]), row["estimated"] == "true"))
    return replay.applied_to(Series.from_points(points))


def _source(region: Region, scenario: Scenario, wall_start_unix_s: float) -> dict[str, Any]:
    if scenario.constant_intensities is not None:
        return {"static": {"intensityGramsPerKwh": f"{scenario.constant_intensities[region.name]:g}"}}
    return {
        "file": {
            "path": str(data_file(region.series_file)),
            "valueColumn": "ci_lifecycle",
            "replay": {
                "seriesStart": scenario.series_start,
                "wallStart": datetime.fromtimestamp(wall_start_unix_s, UTC).isoformat().replace("+00:00", "Z"),
                "speed": scenario.speed,
            },
        }
    }
