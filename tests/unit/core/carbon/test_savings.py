"""Comparing the arms: what a person would compute by hand, what chance does, and what is said with too little."""

from collections.abc import Sequence
from math import isnan, nan

import numpy as np
import pytest
from scipy.stats import t as student

from heliotrope.carbon.arms import Arm
from heliotrope.carbon.bootstrap import block_bootstrap, relative_change_of_ratios
from heliotrope.carbon.savings import (
    MAX_CLASSES,
    MIN_BLOCKS,
    MIN_REQUESTS,
    REST,
    ArmTotals,
    Comparison,
    Evidence,
    Metric,
    Savings,
    Verdict,
    blocks_needed,
    compare,
    small_sample_factor,
    wording,
)

HOUR = 3_600.0


def totals(
    slot: int, name: str, arm: Arm, count: int, mean: float, metric: Metric = Metric.GRAMS, place: str = "e"
) -> ArmTotals:
    return ArmTotals(slot * HOUR, name, arm, count, {metric: count * mean}, {metric: count}, place)


def both(
    slots: Sequence[int], *, name: str = "c", steered: float = 8.0, held: float = 10.0, count: int = 10
) -> list[ArmTotals]:
    """A tenth is held out; means wobble a little from slot to slot, alike in both arms."""
    rows = []
    for slot in slots:
        wobble = 1.0 + 0.2 * np.sin(slot)
        rows.append(totals(slot, name, Arm.STEERED, 9 * count, steered * wobble))
        rows.append(totals(slot, name, Arm.HOLDOUT, count, held * wobble))
    return rows


def of(savings: Savings, metric: Metric = Metric.GRAMS) -> Comparison:
    return next(c for c in savings.overall if c.metric is metric)


def compared(rows: Sequence[ArmTotals]) -> Savings:
    return compare(rows, slot_seconds=HOUR, resamples=500)


def test_a_plain_saving() -> None:
    savings = compared(both(range(24)))
    found = of(savings)
    assert (found.steered_requests, found.holdout_requests) == (2_160, 240)
    assert found.change.estimate == pytest.approx(-0.2)
    assert found.change.low <= -0.2 <= found.change.high
    assert found.difference.estimate == pytest.approx(found.steered_mean - found.holdout_mean)
    assert found.verdict is Verdict.SAVING
    assert found.requests_needed is None
    assert savings.evidence is Evidence.MEASURED
    assert (savings.start_unix_s, savings.end_unix_s) == (0.0, 24 * HOUR)
    assert of(compared(both(range(24), steered=12.0))).verdict is Verdict.INCREASE


def test_the_mix_of_classes_cannot_pass_for_a_saving() -> None:
    """Within each class nothing is saved; the held-out share of the heavy class happens to be larger."""
    rows = []
    for slot in range(24):
        rows += [totals(slot, "light", Arm.STEERED, 100, 1.0), totals(slot, "light", Arm.HOLDOUT, 5, 1.0)]
        rows += [totals(slot, "heavy", Arm.STEERED, 100, 9.0), totals(slot, "heavy", Arm.HOLDOUT, 15, 9.0)]
    found = of(compared(rows))
    assert found.change.estimate == pytest.approx(0.0, abs=1e-12)
    assert found.holdout_mean == pytest.approx((105 * 1.0 + 115 * 9.0) / 220)
    assert found.verdict is Verdict.UNDECIDED


def test_classes_are_weighed_by_their_requests() -> None:
    rows = both(range(24), name="a", steered=5.0, held=10.0, count=30) + both(
        range(24), name="b", steered=10.0, held=10.0, count=10
    )
    savings = compared(rows)
    assert of(savings).change.estimate == pytest.approx(-0.375)
    assert {c.name: c.share for c in savings.classes} == {"a": 0.75, "b": 0.25}
    by_name = {c.name: c.comparisons[0] for c in savings.classes}
    assert by_name["a"].change.estimate == pytest.approx(-0.5)
    assert by_name["b"].change.estimate == pytest.approx(0.0)


def test_rows_of_one_slot_class_and_arm_add_up() -> None:
    whole = compared(both(range(24)))
    parts = [
        ArmTotals(
            r.slot_unix_s,
            r.request_class,
            r.arm,
            r.requests // 2,
            {m: v / 2 for m, v in r.sums.items()},
            {m: v // 2 for m, v in r.counts.items()},
            r.place,
        )
        for r in both(range(24))
        for _ in range(2)
    ]
    assert of(compared(parts)) == of(whole)
    assert of(compared(parts[::-1])).change == of(whole).change


def test_energy_in_a_slot_in_which_no_request_ended_counts() -> None:
    rows = both(range(24))
    early = ArmTotals(0.0, "c", Arm.STEERED, 0, {Metric.GRAMS: 500.0}, {Metric.GRAMS: 0})
    assert of(compared([*rows, early])).steered_mean > of(compared(rows)).steered_mean


def test_small_classes_are_compared_together() -> None:
    rows = both(range(24))
    rows += [totals(i % 24, f"rare-{i}", Arm.STEERED, 9, 8.0) for i in range(50)]
    rows += [totals(i % 24, f"rare-{i}", Arm.HOLDOUT, 1, 10.0) for i in range(50)]
    savings = compared(rows)
    assert [c.name for c in savings.classes] == ["c", REST]
    assert savings.classes[1].share == pytest.approx(500 / 2_900)
    assert of(savings).holdout_requests == 240 + 50


def test_a_class_with_few_held_out_requests_is_small_however_many_are_steered() -> None:
    rows = both(range(24))
    rows += [totals(i, "lopsided", Arm.STEERED, 40, 8.0) for i in range(24)]
    rows += [totals(i, "lopsided", Arm.HOLDOUT, 1, 10.0) for i in range(24)]
    assert [c.name for c in compared(rows).classes] == ["c", REST]


def test_many_classes_are_bounded_and_none_is_lost() -> None:
    rows = [row for i in range(60) for row in both(range(12), name=f"c{i}")]
    savings = compared(rows)
    assert len(savings.classes) == MAX_CLASSES
    assert savings.classes[-1].name == REST
    assert sum(c.share for c in savings.classes) == pytest.approx(1.0)
    assert of(savings).holdout_requests == 60 * 120


def test_a_class_without_one_arm_is_left_out_of_the_means() -> None:
    rows = both(range(24)) + [totals(slot, "only steered", Arm.STEERED, 100, 1e6) for slot in range(24)]
    assert of(compared(rows)).change.estimate == pytest.approx(-0.2)


def test_without_a_holdout_nothing_is_compared_and_the_word_is_modelled() -> None:
    savings = compared([row for row in both(range(24)) if row.arm is Arm.STEERED])
    assert savings.evidence is Evidence.MODELLED
    assert savings.overall == ()
    assert savings.classes == ()
    assert wording(holdout=False).startswith("modelled: no request was held out")
    assert wording(holdout=False, because="engines are emulated") == "modelled: engines are emulated"
    assert wording(holdout=True) == "measured against the policy's holdout"


def test_an_empty_ledger_and_unsteered_requests_say_nothing() -> None:
    empty = compared([])
    assert (empty.overall, empty.evidence, isnan(empty.start_unix_s)) == ((), Evidence.MODELLED, True)
    unsteered = compared([totals(0, "c", Arm.UNSTEERED, 9, 1.0)])
    assert unsteered.overall == ()
    assert unsteered.requests[Arm.UNSTEERED] == 9


def test_too_few_requests_and_too_short_a_time_are_not_enough() -> None:
    few = compared(both(range(24), count=4))
    assert of(few).verdict is Verdict.NOT_ENOUGH
    assert of(few).requests_needed == MIN_REQUESTS
    short = compared(both(range(MIN_BLOCKS - 3), count=100))
    assert of(short).verdict is Verdict.NOT_ENOUGH
    assert of(short).requests_needed is None
    assert blocks_needed(short) == 3
    assert blocks_needed(compared(both(range(MIN_BLOCKS), count=100))) == 0
    unknown = compared(both(range(24)))
    assert of(unknown, Metric.JOULES).verdict is Verdict.NOT_ENOUGH
    assert isnan(of(unknown, Metric.JOULES).steered_mean)


def noisy(seed: int, *, saving: float, hours: int = 48, held_per_hour: int = 4) -> list[ArmTotals]:
    rng = np.random.default_rng(seed)
    rows = []
    for slot in range(hours):
        for arm, count, mean in (
            (Arm.STEERED, 9 * held_per_hour, 10.0 * (1.0 - saving)),
            (Arm.HOLDOUT, held_per_hour, 10.0),
        ):
            rows.append(totals(slot, "c", arm, count, float(rng.gamma(2.0, mean / 2.0, count).mean())))
    return rows


def test_an_undecided_comparison_says_how_many_requests_would_decide() -> None:
    found = of(compared(noisy(1, saving=0.0)))
    assert found.verdict is Verdict.UNDECIDED
    half = (found.change.high - found.change.low) / 2
    assert found.requests_needed == pytest.approx(192 * (half / 0.05) ** 2, rel=0.01)
    assert found.requests_needed is not None
    assert found.requests_needed > found.holdout_requests
    plenty = of(compared(noisy(1, saving=0.0, held_per_hour=400)))
    assert (plenty.verdict, plenty.requests_needed) == (Verdict.UNDECIDED, None)


def test_a_difference_within_chance_is_no_verdict_on_either_side() -> None:
    found = [of(compared(noisy(seed, saving=0.0))) for seed in range(1, 7)]
    assert {c.verdict for c in found} == {Verdict.UNDECIDED}
    assert min(c.change.estimate for c in found) < 0.0 < max(c.change.estimate for c in found)


def test_no_violation_in_either_arm_is_undecided_and_not_a_saving() -> None:
    rows = [
        totals(slot, "c", arm, 50, 0.0, Metric.SLO_VIOLATIONS)
        for slot in range(24)
        for arm in (Arm.STEERED, Arm.HOLDOUT)
    ]
    found = of(compared(rows), Metric.SLO_VIOLATIONS)
    assert (found.verdict, found.steered_mean, found.holdout_mean) == (Verdict.UNDECIDED, 0.0, 0.0)
    assert isnan(found.change.estimate)


def test_where_arms_meet_is_told() -> None:
    rows = both(range(12))
    rows.append(totals(0, "c", Arm.HOLDOUT, 30, 10.0, place="f"))
    savings = compared(rows)
    assert savings.shared_share == pytest.approx(120 / 150)
    assert savings.places_known
    assert not compared([*rows, totals(1, "c", Arm.HOLDOUT, 1, 10.0, place="")]).places_known
    assert "share engines" in savings.interference


def test_unknown_sums_are_left_out() -> None:
    rows = both(range(24))
    bad = ArmTotals(0.0, "c", Arm.HOLDOUT, 1, {Metric.GRAMS: nan}, {Metric.GRAMS: 1})
    assert of(compared([*rows, bad])).change.estimate == pytest.approx(-0.2)


def test_intervals_of_few_blocks_are_wider_than_their_percentiles() -> None:
    rows = noisy(3, saving=0.1, hours=12)
    found = of(compared(rows)).change
    values = np.zeros((12, 4))
    for row in rows:
        column = 0 if row.arm is Arm.STEERED else 2
        slot = int(row.slot_unix_s / HOUR)
        values[slot, column : column + 2] += (row.sums[Metric.GRAMS], row.counts[Metric.GRAMS])
    bare = block_bootstrap(values, relative_change_of_ratios, resamples=500)
    assert found.estimate == pytest.approx(bare.estimate)
    factor = small_sample_factor(12, 0.95)
    assert factor > 1.1
    assert found.high - found.estimate == pytest.approx(factor * (bare.high - bare.estimate))
    assert found.estimate - found.low == pytest.approx(factor * (bare.estimate - bare.low))


def test_short_slots_of_a_long_time_are_joined_to_hours() -> None:
    rows = [
        ArmTotals(
            r.slot_unix_s + part * 300.0,
            r.request_class,
            r.arm,
            r.requests // 2,
            {m: v / 2 for m, v in r.sums.items()},
            {m: v // 2 for m, v in r.counts.items()},
            r.place,
        )
        for r in both(range(24))
        for part in range(2)
    ]
    hours = compare(rows, slot_seconds=300.0, resamples=500)
    assert hours.block_seconds == HOUR
    assert hours.slot_seconds == 300.0
    assert of(hours).change == of(compared(both(range(24)))).change


@pytest.mark.parametrize("blocks", [10, 12, 30, 400])
def test_the_factor_is_students_t_over_the_normal_quantile(blocks: int) -> None:
    expected = student.ppf(0.975, blocks - 1) / 1.959964 * np.sqrt(blocks / (blocks - 1))
    assert small_sample_factor(blocks, 0.95) == pytest.approx(expected, rel=2e-3)


def test_equal_seeds_give_equal_intervals() -> None:
    rows = noisy(2, saving=0.1)
    one, again, other = (compare(rows, slot_seconds=HOUR, resamples=500, seed=s) for s in (1, 1, 2))
    assert of(one) == of(again)
    assert of(one).change != of(other).change
