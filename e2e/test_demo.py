"""The demo keeps itself honest: its saving is what the energy and the grids say, and it follows the grids."""

import asyncio
import io
import json
import os
import signal
import sys
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from heliotrope.units import grams_co2e
from heliotrope_sim.children import Child
from heliotrope_sim.demo.arm import ArmName
from heliotrope_sim.demo.levers import Lever
from heliotrope_sim.demo.run import play
from heliotrope_sim.demo.scenario import REGIONS, Scenario

pytestmark = [pytest.mark.envoy, pytest.mark.slow, pytest.mark.timeout(300)]

SMALL = Scenario(
    regions=tuple(replace(region, engines=1) for region in REGIONS),
    profile="llama-3.1-8b-h100",
    max_num_seqs=12,
    load=0.5,
    arrival_seconds=8.0,
    ramp_seconds=2.0,
    drain_seconds=10.0,
    ttft_slo_seconds=2.0,
)
NAMES = tuple(region.name for region in REGIONS)


def quiet() -> Console:
    return Console(file=io.StringIO(), width=120)


def rows_of(arm: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (arm / "requests.jsonl").read_text().splitlines()]


def actions_of(rows: list[dict[str, Any]]) -> set[str]:
    """How the chosen endpoints were to come by their KV."""
    return {c["kv_action"] for row in rows for c in row["decision"]["carbon_decision"]["candidates"] if c["chosen"]}


async def test_both_arms_and_one_without_a_lever_leave_a_summary_a_report_and_every_request(tmp_path: Path) -> None:
    console = quiet()
    result = await play(SMALL, tmp_path, list(ArmName), console, [Lever.KV])
    summary = json.loads(result.summary_path.read_text())
    for arm in summary["arms"].values():
        assert arm["requests"] > 20
        assert arm["failed"] == 0
        assert set(arm) >= {"slo_violations", "joules", "grams_co2e", "ttft_p50_ms", "ttft_p95_ms", "tpot_p95_ms"}
        assert sum(region["requests"] for region in arm["regions"].values()) == arm["requests"]
    arms = summary["arms"]
    for same in ("output_tokens", "prompt_tokens", "later_turns"):
        assert arms["heliotrope"][same] == arms["round_robin"][same], "every arm gets the same work"
    assert arms["heliotrope"]["later_turns"] > 10
    assert arms["heliotrope"]["cache_hit_share"] > arms["round_robin"]["cache_hit_share"] > 0.0
    lost = summary["ablations"]["levers"]["kv"]
    assert lost["failed"] == 0
    assert lost["joules"] == pytest.approx(arms["heliotrope"]["joules"] + lost["joules_lost"])
    saved = summary["ablations"]["grams_saved"]
    assert saved == pytest.approx(arms["round_robin"]["grams_co2e"] - arms["heliotrope"]["grams_co2e"])
    assert lost["share_of_grams_saved"] == pytest.approx(lost["grams_lost"] / saved)
    assert summary["ratio"]["grams_co2e"] < 0.85
    cleanest = max(summary["arms"]["heliotrope"]["regions"].items(), key=lambda item: item[1]["requests"])[0]
    assert cleanest == "norway"
    books = summary["conservation"]["heliotrope"]
    assert books["difference_millijoules"] == 0
    assert books["readings_hold"]
    assert books["requests_millijoules"] > books["others_millijoules"] * 5
    joules = summary["joules_per_request"]["heliotrope"]
    measured = joules["attributed_against_true"]
    assert measured["requests"] == summary["arms"]["heliotrope"]["requests"]
    assert measured["median"] < 0.15
    assert abs(measured["total"]) < 0.15
    assert joules["estimated_against_attributed"]["requests"] == measured["requests"]
    report = result.report_path.read_text()
    for needle in (
        "Joules of each request",
        "Where requests went, and why",
        "What each lever is worth",
        "need not add up",
        "<svg",
        "Open Database License",
        "less CO2e than round robin",
        "modelled",
    ):
        assert needle in report
    rows = {arm: rows_of(tmp_path / arm) for arm in ("round_robin", "heliotrope", "without_kv")}
    assert {len(each) for each in rows.values()} == {arms["heliotrope"]["requests"]}
    assert {"LocalHit", "Recompute"} <= actions_of(rows["heliotrope"])
    assert actions_of(rows["without_kv"]) == {"Recompute"}
    for each in rows.values():
        prompts = {(row["conversation"], row["turn"]): row for row in each if row["conversation"]}
        for (talk, turn), row in prompts.items():
            assert row["prompt_tokens"] > row["history_tokens"]
            if turn:
                before = prompts[talk, turn - 1]
                assert row["history_tokens"] >= before["prompt_tokens"] - 4 * turn, "a turn resends what was said"


async def test_with_equal_grids_the_grams_saved_are_those_of_the_joules_saved(tmp_path: Path) -> None:
    scenario = replace(SMALL, constant_intensities=dict.fromkeys(NAMES, 200.0))
    arms = (await play(scenario, tmp_path, list(ArmName), quiet())).summary["arms"]
    joules_saved = arms["round_robin"]["joules"] - arms["heliotrope"]["joules"]
    grams_saved = arms["round_robin"]["grams_co2e"] - arms["heliotrope"]["grams_co2e"]
    assert joules_saved > 0, "filling engines one after the other leaves the others idle"
    assert grams_saved == pytest.approx(grams_co2e(joules_saved, SMALL.regions[0].pue, 200.0), rel=1e-6)


@pytest.mark.parametrize("order", list(permutations(NAMES))[::2])
async def test_permuted_grids_move_the_load_with_them(tmp_path: Path, order: tuple[str, ...]) -> None:
    scenario = replace(
        SMALL, arrival_seconds=6.0, constant_intensities=dict(zip(order, (20.0, 200.0, 400.0), strict=True))
    )
    result = await play(scenario, tmp_path, [ArmName.HELIOTROPE], quiet())
    arm = result.summary["arms"]["heliotrope"]
    requests = {name: region["requests"] for name, region in arm["regions"].items()}
    assert requests[order[0]] > requests[order[1]] >= requests[order[2]]
    assert requests[order[0]] > 0.5 * arm["requests"]


async def test_ctrl_c_stops_the_demo_and_everything_that_it_started(tmp_path: Path) -> None:
    child = await Child.start(
        "demo",
        [sys.executable, "-m", "heliotrope_cli.main", "demo", "--arm", "heliotrope", f"--output={tmp_path}"],
        tmp_path / "log",
    )
    session = os.getsid(child.pid)
    picker_log = tmp_path / "heliotrope" / "picker.log"
    async with asyncio.timeout(60):
        while "listening" not in _text(picker_log):
            await asyncio.sleep(0.1)
    descendants = _descendants(child.pid)
    assert len(descendants) >= 2
    child.send_signal(signal.SIGINT)
    await child.wait(30.0)
    assert child.exit_code == 130
    assert "Traceback" not in child.log_tail()
    async with asyncio.timeout(5):  # the kernel ends what was just being started
        while not {_state(pid) for pid in descendants} <= {"Z"}:
            await asyncio.sleep(0.1)
    assert session == child.pid


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _descendants(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            if parent == pid:
                found += [int(entry.name), *_descendants(int(entry.name))]
    return found


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"
