from dataclasses import replace

import numpy as np
import pytest

from heliotrope.carbon.footprint import MixedGramsError
from heliotrope.carbon.series import Point, Series
from heliotrope.carbon.settlement import RegionSignal, SignalKind, StoredEnergy, intensity_over, settle
from heliotrope.carbon.signal import EmissionFactor, SignalType
from heliotrope.errors import InvalidInputError

AVERAGE = SignalKind(SignalType.AVERAGE, EmissionFactor.LIFECYCLE)
MARGINAL = SignalKind(SignalType.MARGINAL, EmissionFactor.DIRECT)
KWH = 3_600_000.0
SLOT = 300


def signal(values: list[float], kind: SignalKind = AVERAGE, estimated: bool | None = False) -> RegionSignal:
    points = [Point(i * SLOT, value, estimated) for i, value in enumerate(values)]
    return RegionSignal(Series.from_points(points, last_holds_s=SLOT), kind, "file")


def energy(rows: list[tuple[int, str, str, float, float]], kind: SignalKind | None = AVERAGE) -> StoredEnergy:
    """(slot, region, group, kWh, recorded grams), with a PUE of 1.5."""
    return StoredEnergy(
        slot_unix_s=np.array([slot * SLOT for slot, *_ in rows], dtype=np.int64),
        slot_seconds=np.full(len(rows), SLOT, dtype=np.int64),
        regions=[row[1] for row in rows],
        groups=[row[2] for row in rows],
        it_joules=np.array([row[3] * KWH for row in rows]),
        pue=np.full(len(rows), 1.5),
        recorded_grams=np.array([row[4] for row in rows]),
        recorded_kinds=[None if np.isnan(row[4]) else kind for row in rows],
    )


STORED = energy(
    [
        (0, "es", "policy", 2.0, 300.0),  # recorded at 100 g/kWh: 2 × 1.5 × 100
        (1, "es", "holdout", 1.0, 150.0),
        (1, "no", "policy", 4.0, 60.0),  # recorded at 10 g/kWh
    ]
)


def test_each_slot_is_priced_with_its_own_intensity() -> None:
    result = settle(STORED, {"es": signal([120.0, 80.0]), "no": signal([0.0, 20.0])}, resamples=10)
    es, no = result.regions
    assert es.settled_grams == pytest.approx(2 * 1.5 * 120 + 1 * 1.5 * 80)
    assert no.settled_grams == pytest.approx(4 * 1.5 * 20)
    assert result.total.settled_grams == pytest.approx(480 + 120)
    assert result.total.recorded_grams == pytest.approx(510)
    assert result.total.change.estimate == pytest.approx(600 / 510 - 1)
    holdout, policy = result.groups
    assert (holdout.group, policy.group) == ("holdout", "policy")
    assert policy.settled_grams == pytest.approx(360 + 120)
    assert result.total.unpriced_joules == 0.0


def test_a_slot_is_priced_with_the_mean_over_it() -> None:
    series = Series.from_points([Point(0.0, 100.0), Point(150.0, 200.0)], last_holds_s=150.0)
    stored = energy([(0, "es", "policy", 1.0, 150.0)])
    result = settle(stored, {"es": RegionSignal(series, AVERAGE, "f")}, resamples=10)
    assert result.total.settled_grams == pytest.approx(1.5 * 150.0)


def test_what_no_series_covers_stays_unpriced_and_is_told() -> None:
    result = settle(STORED, {"es": signal([120.0])}, resamples=10)
    assert result.missing_regions == ("no",)
    assert result.total.settled_joules == pytest.approx(2 * KWH)
    assert result.total.unpriced_joules == pytest.approx(5 * KWH)
    # Compared is only what is priced both times.
    assert result.total.compared_recorded_grams == pytest.approx(300.0)
    assert result.total.compared_settled_grams == pytest.approx(360.0)
    assert result.total.change.estimate == pytest.approx(0.2)


def test_an_unknown_pue_or_region_is_unpriced() -> None:
    stored = replace(STORED, pue=np.array([np.nan, 1.5, 1.5]), regions=["es", "es", ""])
    total = settle(stored, {"es": signal([120.0, 80.0])}, resamples=10).total
    assert total.settled_joules == pytest.approx(1 * KWH)
    assert total.unpriced_joules == pytest.approx(6 * KWH)


def test_zero_intensity_is_a_price() -> None:
    total = settle(STORED, {"es": signal([0.0, 0.0]), "no": signal([0.0, 0.0])}, resamples=10).total
    assert (total.settled_grams, total.unpriced_joules) == (0.0, 0.0)
    assert total.change.estimate == -1.0


def test_another_kind_of_signal_is_told_and_not_compared() -> None:
    result = settle(STORED, {"es": signal([500.0] * 2, MARGINAL), "no": signal([400.0] * 2, MARGINAL)}, resamples=10)
    assert result.kind == MARGINAL
    assert result.total.settled_grams == pytest.approx(1.5 * (3 * 500 + 4 * 400))
    assert result.total.other_kind_joules == pytest.approx(7 * KWH)
    assert (result.total.recorded_grams, result.total.compared_joules) == (0.0, 0.0)
    assert np.isnan(result.total.change.estimate)


def test_energy_without_recorded_grams_is_settled_and_not_compared() -> None:
    stored = energy([(0, "es", "policy", 1.0, float("nan"))])
    total = settle(stored, {"es": signal([100.0])}, resamples=10).total
    assert total.settled_grams == pytest.approx(150.0)
    assert (total.recorded_grams, total.compared_joules, total.other_kind_joules) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(("estimated", "share"), [(False, 0.0), (True, 1.0), (None, 1.0)])
def test_what_is_not_known_to_be_measured_counts_as_estimated(estimated: bool | None, share: float) -> None:
    stored = energy([(0, "es", "policy", 1.0, 150.0)])
    total = settle(stored, {"es": signal([100.0], estimated=estimated)}, resamples=10).total
    assert total.estimated_joules == pytest.approx(share * KWH)


def test_signals_of_two_kinds_are_refused() -> None:
    with pytest.raises(MixedGramsError, match=r"es: average lifecycle, no: marginal direct"):
        settle(STORED, {"es": signal([1.0]), "no": signal([1.0], MARGINAL)})


def test_a_signal_of_an_unknown_region_names_those_there_are() -> None:
    with pytest.raises(InvalidInputError, match=r"se: no energy was drawn .* there are: es, no"):
        settle(STORED, {"se": signal([1.0])})


def test_nothing_to_settle_is_said() -> None:
    with pytest.raises(InvalidInputError, match="no energy"):
        settle(energy([]), {"es": signal([1.0])})
    with pytest.raises(InvalidInputError, match="at least one region"):
        settle(STORED, {})


def test_the_interval_covers_a_constant_change_exactly() -> None:
    rng = np.random.default_rng(1)
    kwh = rng.uniform(0.5, 2.0, 288)
    stored = energy([(i, "es", "policy", float(x), float(x * 1.5 * 100)) for i, x in enumerate(kwh)])
    result = settle(stored, {"es": signal([110.0] * 288)})
    assert result.block_seconds == 3_600  # a day has blocks of an hour
    change = result.total.change
    assert (change.estimate, change.low, change.high) == pytest.approx((0.1, 0.1, 0.1))
    varying = settle(stored, {"es": signal([100.0 + 20.0 * (i % 24 < 12) for i in range(288)])})
    assert varying.total.change.low < varying.total.change.estimate < varying.total.change.high


def test_lines_that_give_and_take_back_settle_to_their_balance() -> None:
    """The line `unrecorded` holds negative joules where requests took theirs back."""
    stored = energy([(0, "es", "unrecorded", 3.0, 450.0), (0, "es", "unrecorded", -3.0, -450.0)])
    total = settle(stored, {"es": signal([200.0])}, resamples=10).total
    assert (total.it_joules, total.settled_grams) == (0.0, 0.0)
    # Given at one intensity and taken back at another: some grams, of no energy, whose change means nothing.
    moved = energy([(0, "es", "unrecorded", 3.0, 450.0), (1, "es", "unrecorded", -3.0, -440.0)])
    assert np.isnan(settle(moved, {"es": signal([200.0, 100.0])}, resamples=10).total.change.estimate)


def test_intensity_over_a_slot_says_whether_it_is_estimated() -> None:
    assert intensity_over(signal([120.0], estimated=True).series, 0, SLOT) == (120.0, True)
    assert intensity_over(signal([120.0]).series, SLOT, SLOT) == (None, None)
