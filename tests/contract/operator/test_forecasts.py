"""Forecasts on a real API server: learned from a source's past, kept over a restart, shown by the command."""

import json
import math
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.contract.operator.cluster import Api
from tests.contract.operator.conftest import Start
from tests.contract.operator.process import eventually

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]


def past(path: Path, days: int) -> dict[str, Any]:
    """A file source that ends with the running hour."""
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    rows = ["datetime_utc,g"]
    for i in range(days * 24):
        moment = now - timedelta(hours=i)
        value = 300.0 + 100.0 * math.cos(moment.hour / 24.0 * 2.0 * math.pi) + i * 7 % 11
        rows.append(f"{moment.isoformat()},{value:.1f}")
    path.write_text("\n".join([*rows, ""]))
    return {"file": {"path": str(path), "valueColumn": "g"}}


def test_a_source_without_a_forecast_gets_one_that_outlives_the_operator(
    api: Api, account: Path, start: Start, unique: Callable[[str], str], tmp_path: Path
) -> None:
    name = unique("es")
    api.apply(api.region(name, source=past(tmp_path / "es.csv", 60)))
    operator = start("first")

    forecast = eventually(lambda: api.get("RegionProfile", name).get("status", {}).get("forecast"))

    assert forecast["source"] == "heliotrope anomalies"
    assert len(forecast["points"]) == 72
    for point in forecast["points"]:
        assert 0.0 <= float(point["lower"]) <= float(point["value"]) <= float(point["upper"]) < 500.0
    assert operator.metric("heliotrope_carbon_forecast_trainings_total", {"outcome": "learned"}) >= 1.0
    assert api.told(name) == []  # a forecast is no event

    operator.terminate()
    start("second")
    shown = eventually(lambda: api.get("RegionProfile", name)["status"].get("forecast"))
    assert shown["source"] == "heliotrope anomalies"

    command = [sys.executable, "-m", "heliotrope_cli.main", "forecast", name, "--json", "--hours", "2"]
    printed = subprocess.run([*command, "--kubeconfig", str(account)], capture_output=True, text=True, check=True)
    region = json.loads(printed.stdout)["regions"][0]
    assert (region["region"], region["freshness"]) == (name, "Fresh")
    assert len(region["forecast"]["points"]) == 73
    assert 9 <= datetime.fromisoformat(region["cleanest"]["start"]).hour <= 14
