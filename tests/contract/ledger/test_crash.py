"""A real picker's ledger, killed at random moments with no chance to clean up."""

import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from heliotrope_epp.ledger.compaction import compact
from heliotrope_epp.ledger.journal import segments
from heliotrope_epp.ledger.read import opened

REPOSITORY = Path(__file__).parents[3]
KILLS = 5
STATED_WINDOW_SECONDS = 1.0


def totals(folder: Path) -> tuple[int, int]:
    """All millijoules, and those of the line `unrecorded`."""
    with opened(folder) as connection:
        rows = connection.sql(
            "SELECT sum(millijoules), sum(millijoules) FILTER (line = 'unrecorded') FROM ledger"
        ).fetchall()
    return int(rows[0][0] or 0), int(rows[0][1] or 0)


def run_and_kill(folder: Path, segment_bytes: int, seconds: float) -> list[tuple[int, int, float]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.contract.ledger.booking", str(folder), str(segment_bytes)],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    with process:
        lines = [process.stdout.readline()]
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            lines.append(process.stdout.readline())
        process.kill()
        lines += process.stdout.readlines()
    said = []
    for line in lines:
        if line.endswith(b"\n"):
            booked, durable, unwritten = line.split()
            said.append((int(booked), int(durable), float(unwritten)))
    return said


@pytest.mark.slow
@pytest.mark.parametrize("segment_bytes", [2_000, 10**9], ids=["compacting all the time", "one segment"])
def test_a_kill_loses_only_what_was_in_memory_and_nothing_counts_twice(tmp_path: Path, segment_bytes: int) -> None:
    rng = random.Random(segment_bytes)
    before = written = 0
    for _ in range(KILLS):
        said = run_and_kill(tmp_path, segment_bytes, rng.uniform(0.0, 1.2))
        booked, durable, _ = said[-1]
        total, unrecorded = totals(tmp_path)
        assert before + durable <= total <= before + booked + 3  # the last booking may not have been said
        assert total == 3 * unrecorded  # no booking is there by half
        assert statistics.median(unwritten for *_, unwritten in said) < STATED_WINDOW_SECONDS
        written += durable
        before = total
    assert written > 0
    # Reading changed nothing, and what the dead left is compacted once, however often that is tried.
    compact(tmp_path)
    assert segments(tmp_path) == []
    assert totals(tmp_path)[0] == before
    compact(tmp_path)
    assert totals(tmp_path)[0] == before
