import numpy as np
import pytest

from heliotrope.predict.features import FEATURE_COUNT, column_of
from heliotrope.predict.regimes import Regime, load_of, regimes_of
from heliotrope.predict.targets import STEPS

NAN = float("nan")


@pytest.mark.parametrize(
    ("running", "waiting", "kv_use", "duty", "slots", "regime"),
    [
        (10.0, 0.0, 0.1, 0.1, 64.0, Regime.BELOW),
        (44.0, 0.0, 0.1, 0.1, 64.0, Regime.AROUND),
        (63.0, 0.0, 0.1, 0.1, 64.0, Regime.AROUND),
        (63.0, 1.0, 0.1, 0.1, 64.0, Regime.ABOVE),
        (1.0, 0.0, 0.8, 0.1, 64.0, Regime.AROUND),
        (1.0, 0.0, 1.2, 0.1, 64.0, Regime.ABOVE),
        (1.0, 0.0, 0.1, 0.9, 64.0, Regime.AROUND),
        (1.0, 0.0, 0.1, NAN, NAN, Regime.BELOW),
        (NAN, NAN, NAN, NAN, 64.0, Regime.UNKNOWN),
    ],
)
def test_the_fullest_resource_decides(
    running: float, waiting: float, kv_use: float, duty: float, slots: float, regime: Regime
) -> None:
    row = np.full((1, FEATURE_COUNT), NAN)
    columns = ("running", "waiting", "kv_use", "prefill_duty", "max_num_seqs")
    for name, value in zip(columns, (running, waiting, kv_use, duty, slots), strict=True):
        row[0, column_of(name)] = value
    assert Regime(int(regimes_of(row)[0])) is regime
    assert np.isnan(load_of(row)[0]) == (regime is Regime.UNKNOWN)


def test_steps_have_one_regime() -> None:
    assert regimes_of(np.zeros((3, 5)), STEPS).tolist() == [Regime.BELOW] * 3
