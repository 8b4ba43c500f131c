"""From a ledger on disk to the comparison of its arms."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.unit.epp.ledger.builders import NAN, NOW, clock, drew, finished, settings, store

from heliotrope.carbon.arms import Arm
from heliotrope.carbon.savings import Metric, Verdict, compare
from heliotrope.carbon.signal import CarbonSignal, Reading, SignalType
from heliotrope.errors import InvalidInputError
from heliotrope_epp.datalayer.store import EndpointStore
from heliotrope_epp.ledger.arms import LedgerArms, read_arms
from heliotrope_epp.ledger.ledger import Ledger
from heliotrope_epp.ledger.places import Places
from heliotrope_epp.ledger.writer import LedgerWriter
from heliotrope_epp.outcomes.energy import RequestEnergy
from heliotrope_epp.outcomes.finished import HOLDOUT, STEERED, UNSTEERED, FinishedRequest

SLOT = 300.0
Finished = tuple[FinishedRequest, RequestEnergy | None]


def write(folder: Path, requests: Iterable[Finished], *, of: EndpointStore | None = None) -> None:
    """A ledger as a picker leaves it."""
    at = clock()
    ledger = Ledger(Places(of or store()), settings(folder), at)
    writer = LedgerWriter(ledger, settings(folder), at)
    for request, energy in requests:
        ledger.measured(request, energy)
    writer.start()
    writer.stop()


def in_slot(slot: int, arm: str, millijoules: int, **changes: object) -> Finished:
    at = NOW + slot * SLOT
    promised = {"ttft_slo_seconds": 1.5, "tpot_slo_seconds": 0.2}
    return (
        finished(arm=arm, dispatched_unix_s=at, ended_unix_s=at + 2.0, **{**promised, **changes}),
        drew(start_unix_s=at, end_unix_s=at + 2.0, millijoules=millijoules),
    )


def arms(slots: int = 12, held: int = 10) -> list[Finished]:
    """90 % steered; a held-out request draws 1,000 J, a steered one 800."""
    return [
        in_slot(slot, arm, millijoules)
        for slot in range(slots)
        for arm, millijoules, count in ((HOLDOUT, 1_000_000, held), (STEERED, 800_000, 9 * held))
        for _ in range(count)
    ]


def total(read: LedgerArms, arm: Arm, metric: Metric) -> tuple[float, int]:
    rows = [row for row in read.totals if row.arm is arm]
    return sum(row.sums.get(metric, 0.0) for row in rows), sum(row.counts.get(metric, 0) for row in rows)


def test_a_ledger_gives_back_what_its_arms_did(tmp_path: Path) -> None:
    write(tmp_path, arms())
    read = read_arms(tmp_path)
    assert (read.policy, read.slot_seconds, read.caveats) == ("llm/green", SLOT, ())
    assert read.coverage == {Arm.STEERED: 1.0, Arm.HOLDOUT: 1.0}
    assert {row.request_class for row in read.totals} == {"short"}
    assert {row.place for row in read.totals} == {"es, llm/v"}
    assert total(read, Arm.HOLDOUT, Metric.JOULES) == (pytest.approx(120 * 1_000.0), 120)
    assert total(read, Arm.HOLDOUT, Metric.JOULES_WITH_IDLE) == (pytest.approx(120 * 1_407.0), 120)
    # 1,400 J with the host behind a PUE of 1.5 from 100 g/kWh.
    assert total(read, Arm.HOLDOUT, Metric.GRAMS) == (pytest.approx(120 * 1_400.0 / 3.6e6 * 150.0), 120)
    assert total(read, Arm.HOLDOUT, Metric.TTFT) == (pytest.approx(120 * 1.0), 120)
    assert total(read, Arm.HOLDOUT, Metric.TPOT) == (pytest.approx(120 * 0.25), 120)
    assert total(read, Arm.HOLDOUT, Metric.SLO_VIOLATIONS) == (120.0, 120)  # TPOT 0.25 s against 0.2 s
    savings = compare(read.totals, slot_seconds=read.slot_seconds, resamples=200)
    joules = next(c for c in savings.overall if c.metric is Metric.JOULES)
    assert joules.change.estimate == pytest.approx(-0.2)
    assert joules.verdict is Verdict.SAVING
    assert savings.shared_share == 1.0


def test_what_no_policy_decided_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, [in_slot(0, UNSTEERED, 1, policy=None)])
    read = read_arms(tmp_path)
    assert (read.policy, read.totals) == (None, ())


def test_requests_without_a_counter_count_for_latency_alone(tmp_path: Path) -> None:
    unmetered = [(in_slot(0, HOLDOUT, 1)[0], None) for _ in range(5)]
    write(tmp_path, [*arms(1), *unmetered])
    read = read_arms(tmp_path)
    assert total(read, Arm.HOLDOUT, Metric.TTFT)[1] == 15
    assert total(read, Arm.HOLDOUT, Metric.JOULES) == (pytest.approx(10_000.0), 10)
    assert read.coverage[Arm.HOLDOUT] == pytest.approx(10 / 15)


def test_energy_without_a_fresh_signal_has_no_grams(tmp_path: Path) -> None:
    write(tmp_path, arms(1), of=store(fresh=False))
    read = read_arms(tmp_path)
    assert total(read, Arm.HOLDOUT, Metric.GRAMS) == (0.0, 0)
    assert total(read, Arm.HOLDOUT, Metric.JOULES)[1] == 10


def test_several_policies_must_be_told_apart(tmp_path: Path) -> None:
    write(tmp_path, [*arms(1), in_slot(0, STEERED, 1, policy="llm/other")])
    with pytest.raises(InvalidInputError, match="llm/green, llm/other"):
        read_arms(tmp_path)
    assert read_arms(tmp_path, policy="llm/other").policy == "llm/other"
    with pytest.raises(InvalidInputError, match=r"'x' has enforced nothing.*llm/green"):
        read_arms(tmp_path, policy="x")


def test_time_is_cut_at_slots(tmp_path: Path) -> None:
    write(tmp_path, arms(4))
    read = read_arms(tmp_path, since_unix_s=NOW + SLOT, until_unix_s=NOW + 3 * SLOT)
    assert {row.slot_unix_s for row in read.totals} == {NOW + SLOT, NOW + 2 * SLOT}


def test_grams_of_different_meaning_are_not_compared(tmp_path: Path) -> None:
    marginal = store()
    before = marginal.regions()["es"].signal.reading
    assert before is not None
    changed = Reading(50.0, before.measured_unix_s, "other", SignalType.MARGINAL, before.emission_factor)
    marginal.set_signals({"es": CarbonSignal(changed, stale_after_s=3_600.0)})
    write(tmp_path, arms(1))
    write(tmp_path, arms(1), of=marginal)
    read = read_arms(tmp_path)
    assert total(read, Arm.HOLDOUT, Metric.GRAMS) == (0.0, 0)
    assert total(read, Arm.HOLDOUT, Metric.JOULES)[1] == 20
    (caveat,) = read.caveats
    assert "average lifecycle and marginal lifecycle" in caveat


def test_hosts_that_are_known_in_part_are_told(tmp_path: Path) -> None:
    request, energy = in_slot(0, HOLDOUT, 1_000)
    bare = RequestEnergy(energy.start_unix_s, energy.end_unix_s, 1_000, 0.0, NAN, 0.5, 1.0) if energy else None
    write(tmp_path, [*arms(1), (request, bare)])
    assert "hosts' energy is known for some variants only" in read_arms(tmp_path).caveats[0]
