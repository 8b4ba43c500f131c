"""Workloads: what they are, and the file and line of what is wrong with one."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from heliotrope.errors import InvalidInputError
from heliotrope_sim.fleet.arrivals import azure, diurnal, mooncake, poisson
from heliotrope_sim.fleet.diurnal import casper
from heliotrope_sim.fleet.lengths import CNN_DAILYMAIL, OPEN_ORCA, Lengths
from heliotrope_sim.fleet.network import aws_rtt_seconds
from heliotrope_sim.fleet.workload import RequestClass, workload


@pytest.mark.parametrize("lengths", [CNN_DAILYMAIL, OPEN_ORCA])
def test_poisson_has_its_rate_its_lengths_and_goes_round(lengths: Lengths) -> None:
    made = poisson(200.0, 100.0, seed=3, schedulers=4, lengths=lengths)
    assert len(made) == pytest.approx(20_000, abs=500)
    assert made.prompt_tokens.mean() == pytest.approx(lengths.mean_prompt_tokens, rel=0.03)
    assert made.output_tokens.mean() == pytest.approx(lengths.mean_output_tokens, rel=0.03)
    gaps = np.diff(made.arrival_ns) / 1e9
    assert gaps.mean() == pytest.approx(1 / 200.0, rel=0.03)
    assert gaps.std() == pytest.approx(1 / 200.0, rel=0.05)
    assert np.bincount(made.origin).max() - np.bincount(made.origin).min() <= 1
    assert (made.expected_output_tokens == made.output_tokens).all()
    again = poisson(200.0, 100.0, seed=3, schedulers=4, lengths=lengths)
    assert (again.arrival_ns == made.arrival_ns).all()
    assert (again.prompt_tokens == made.prompt_tokens).all()


def test_classes_have_their_shares() -> None:
    classes = (RequestClass("chat"), RequestClass("batch", ttft_slo_seconds=60.0))
    made = poisson(100.0, 100.0, seed=1, classes=classes, class_shares=[3.0, 1.0])
    assert (made.class_index == 1).mean() == pytest.approx(0.25, abs=0.02)
    with pytest.raises(InvalidInputError, match="class_shares"):
        poisson(100.0, 1.0, seed=1, classes=classes, class_shares=[1.0])


def test_azure_keeps_its_pattern_at_another_rate() -> None:
    recorded = azure("code")
    assert recorded.arrival_ns[0] == 0
    faster = azure("code", rate_per_second=45.0, seconds=20.0, schedulers=2)
    assert len(faster) == 900
    assert faster.duration_ns == 20_000_000_000
    assert (faster.prompt_tokens == recorded.prompt_tokens[:900]).all()
    with pytest.raises(InvalidInputError, match="none of conversation, code"):
        azure("chat")


def test_mooncake_shares_prefixes_within_and_between_sessions() -> None:
    made = mooncake(requests=3000, schedulers=3)
    sizes = np.diff(made.block_offsets)
    assert (sizes == made.prompt_tokens // 16).all()
    of = {i: made.block_hashes[made.block_offsets[i] : made.block_offsets[i + 1]] for i in range(len(made))}
    # Every prompt of the trace but a few begins as the first one does.
    assert np.mean([len(of[i]) >= 32 and (of[i][:32] == of[0][:32]).all() for i in range(1, 200)]) > 0.8
    counts = np.bincount(made.session)
    session = int(np.argmax(counts))
    turns = np.flatnonzero(made.session == session)
    assert len(turns) > 3
    assert len(np.unique(made.origin[turns])) == 1
    for before, after in pairwise(turns):
        shared = (made.prompt_tokens[before] // 512 - 1) * 32
        assert (of[int(before)][:shared] == of[int(after)][:shared]).all()
    with pytest.raises(InvalidInputError, match="divide 512"):
        mooncake(block_size=100)


def test_diurnal_follows_the_hours_of_each_region() -> None:
    rates = casper()
    assert rates.per_hour.shape == (1201, 6)
    two = rates.of("us-east-1", "eu-central-1")
    made = diurnal(two, 50_000, seed=2, hours=24)
    hour = (made.arrival_ns // 3_600_000_000_000).astype(int)
    found = np.array([[((hour == h) & (made.origin == o)).sum() for o in range(2)] for h in range(24)])
    expected = two.per_hour[:24] / two.per_hour[:24].sum() * 50_000
    assert np.abs(found - expected).max() < 5 * np.sqrt(expected.max())
    with pytest.raises(InvalidInputError, match="there are 1201"):
        diurnal(two, 10, seed=1, start_hour=1190)
    with pytest.raises(InvalidInputError, match="mars"):
        rates.of("mars")


@pytest.mark.parametrize(
    ("rows", "line", "problem"),
    [
        (["3600,x,1,2", "7200,x,1"], 3, "has 1 regions"),
        (["3600,x,1,2", "10800,x,1,2"], 3, "hours are missing"),
        (["7200,x,1,2", "3600,x,1,2"], 3, "comes before"),
        (["3600,x,1,-2"], 2, "negative"),
        (["3600,x,1,nan"], 2, "missing"),
        (["3600,x,1,"], 2, "not a row"),
    ],
)
def test_hourly_requests_name_file_and_line(tmp_path: Path, rows: list[str], line: int, problem: str) -> None:
    path = tmp_path / "hours.csv"
    path.write_text("\n".join(["timestamp,datetime,a,b", *rows]) + "\n")
    with pytest.raises(InvalidInputError, match=rf"hours\.csv:{line}: .*{problem}"):
        casper(path)


def test_an_unsorted_chain_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "chains.csv"
    path.write_text("timestamp_ms,input_length,output_length,parent,shared_blocks\n100,5,5,-1,0\n50,5,5,-1,0\n")
    with pytest.raises(InvalidInputError, match=r"chains\.csv:3"):
        mooncake(path=path)


@pytest.mark.parametrize(
    ("columns", "row", "problem"),
    [
        (([0.0, -1.0], 5, 5), 2, "missing or negative"),
        (([0.0, float("nan")], 5, 5), 2, "missing or negative"),
        (([0.0, 2.0, 1.0], 5, 5), 3, "before the row above"),
        (([0.0, 1.0], [5, 0], 5), 2, "prompt_tokens"),
        (([0.0, 1.0], 5, [5, float("nan")]), 2, "output_tokens"),
    ],
)
def test_columns_name_their_source_and_row(columns: tuple[object, object, object], row: int, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"mine:{row}: .*{problem}"):
        workload(*columns, source="mine")  # type: ignore[arg-type]


def test_no_requests_are_no_workload() -> None:
    with pytest.raises(InvalidInputError, match="no requests"):
        workload([], 5, 5)
    with pytest.raises(InvalidInputError, match="after the end"):
        workload([5.0], 5, 5, duration_seconds=4.0)


def test_round_trips_are_measured_or_an_error() -> None:
    rtt = aws_rtt_seconds(["eu-north-1", "us-east-1"], ["us-east-1", "sa-east-1"])
    assert 0.08 < rtt[0, 0] < 0.15
    assert rtt[1, 0] < 0.01
    with pytest.raises(InvalidInputError, match="eu-north-1"):
        aws_rtt_seconds(["eu-north-1"], ["mars"])
