"""What a status says of the hours ahead."""

from typing import Any

import pytest
from tests.unit.operator.deferral.documents import region
from tests.unit.operator.objects import NOW_S

from heliotrope.api import documents
from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope.carbon.forecast.value import CarbonForecast
from heliotrope_operator.outlook import QUANTILES_PER_MEAN_ERROR, outlook

HOUR = 3600.0


def read(document: dict[str, Any]) -> CarbonForecast | None:
    found = documents.parse(document)
    assert isinstance(found, RegionProfile)
    return outlook(found)


def test_it_begins_with_the_reading_which_is_certain() -> None:
    found = read(region("es", 300.0, 200.0, 100.0))

    assert found is not None
    assert found.mean_over(NOW_S, NOW_S + HOUR) == found.mean_over(NOW_S, NOW_S)
    now, later = found.mean_over(NOW_S, NOW_S), found.mean_over(NOW_S + HOUR, NOW_S + 2 * HOUR)
    assert now is not None
    assert later is not None
    assert (now.lower, now.expected, now.upper) == (300.0, 300.0, 300.0)
    assert later.upper == pytest.approx(200.0 + QUANTILES_PER_MEAN_ERROR)
    assert found.end_unix_s == NOW_S + 3 * HOUR


def test_points_that_state_their_spread_are_believed() -> None:
    document = region("es", 300.0, 200.0, 100.0)
    for point in document["status"]["forecast"]["points"]:
        point |= {"lower": str(float(point["value"]) - 50), "upper": str(float(point["value"]) + 70)}

    found = read(document)

    assert found is not None
    mean = found.mean_over(NOW_S + HOUR, NOW_S + 2 * HOUR)
    assert mean is not None
    assert (mean.lower, mean.upper) == (150.0, 270.0)


@pytest.mark.parametrize("part", ["forecastError", "lower"])
def test_a_spread_that_is_not_whole_is_unknown(part: str) -> None:
    document = region("es", 300.0, 200.0, 100.0)
    del document["status"]["forecastError"]
    if part == "lower":
        document["status"]["forecast"]["points"][1]["lower"] = "150"

    found = read(document)

    assert found is not None
    assert found.lower is None


def test_points_before_the_reading_are_past() -> None:
    document = region("es", 300.0, 200.0, 100.0)
    document["status"]["intensity"]["time"] = document["status"]["forecast"]["points"][1]["time"]

    found = read(document)

    assert found is not None
    assert found.start_unix_s == NOW_S + HOUR


@pytest.mark.parametrize("freshness", ["Stale", "Absent"])
def test_a_signal_that_is_not_fresh_has_none(freshness: str) -> None:
    assert read(region("es", 300.0, 200.0, freshness=freshness)) is None


def test_a_reading_alone_covers_its_own_hour() -> None:
    found = read(region("es", 300.0))

    assert found is not None
    assert found.end_unix_s == NOW_S + HOUR
