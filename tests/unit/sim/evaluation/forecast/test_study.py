"""The evaluation of forecasts: nothing from after a training or an origin enters, and figures are what they say."""

import dataclasses

import numpy as np
import pytest

from heliotrope.carbon.forecast.hours import MAX_HOURS, FloatMatrix, Hours, IntVector
from heliotrope.carbon.forecast.method import HORIZON_HOURS, Fitted
from heliotrope_sim.evaluation.forecast import report
from heliotrope_sim.evaluation.forecast.study import QUICK_ZONES, Settings, evaluate_zone
from heliotrope_sim.evaluation.forecast.zones import zones

FEW = Settings(learn_every_days=120, origin_every_hours=101)


@dataclasses.dataclass
class Constant:
    """Says the same always; remembers until when it was trained."""

    name: str = "constant"
    value: float = 100.0
    trained_until: list[int] = dataclasses.field(default_factory=list)

    def fit(self, hours: Hours) -> Fitted:
        self.trained_until.append(hours.end)
        return self

    def predict(self, hours: Hours, origins: IntVector) -> FloatMatrix:
        assert hours.first + int(origins.min()) >= self.trained_until[-1] - 1
        return np.full((len(origins), HORIZON_HOURS), self.value)


def wave(hours: int, *, seed: int = 0) -> Hours:
    rng = np.random.default_rng(seed)
    return Hours(455_000, 300.0 + 100.0 * np.cos(np.arange(hours) / 24.0 * 2.0 * np.pi) + rng.normal(0.0, 10.0, hours))


@pytest.mark.slow
def test_errors_are_those_of_the_hours_after_the_training() -> None:
    year = wave(MAX_HOURS + 30 * 24)
    rival = Constant()
    result = evaluate_zone("wave", year, dataclasses.replace(FEW, rivals=(rival,)))
    assert rival.trained_until == [year.first + MAX_HOURS]
    after = year.values[MAX_HOURS:]
    assert result.rivals["constant"] == pytest.approx(np.abs(after - 100.0).mean(), rel=0.05)
    # Two independent errors of 10 make 11.3 on average, one makes 8.
    assert result.baseline_mae == pytest.approx(11.3, abs=1.0)
    assert result.mae == pytest.approx(8.2, abs=0.8)
    assert result.coverage == pytest.approx(0.8, abs=0.06)
    assert 0.0 < result.mape < result.baseline_mape < 0.1
    assert result.forecasts == -(-(30 * 24 - HORIZON_HOURS) // 101)


def test_the_recorded_zones_are_there() -> None:
    found = zones()
    assert len(found) == 36
    assert set(QUICK_ZONES) <= set(found)
    assert {len(year.values) for year in found.values()} == {8759, 8760}
    assert min(year.known for year in found.values()) == 8759
    assert len({year.first for year in found.values()}) == 1


@pytest.mark.slow
def test_tables_and_documents_have_every_zone() -> None:
    results = [evaluate_zone(name, wave(MAX_HOURS + 20 * 24, seed=i), FEW) for i, name in enumerate(("A", "B"))]
    page = report.markdown(results, "command")
    assert all(f"| {each.zone} |" in page for each in results)
    assert [each["zone"] for each in report.document(results)["zones"]] == ["A", "B"]
    assert [table.row_count for table in report.tables(results)] == [2, len(report.SHOWN_AHEAD)]
    assert report.summary(results).startswith("2 zones: ")
