"""Runs the demo from beginning to report."""

import asyncio
import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import uvloop
from rich.console import Console
from rich.live import Live

from heliotrope_sim.demo.arm import Arm, ArmName, ArmState, run_arm
from heliotrope_sim.demo.levers import Lever
from heliotrope_sim.demo.plan import PlannedRequest
from heliotrope_sim.demo.report import html
from heliotrope_sim.demo.requests import planned_requests
from heliotrope_sim.demo.scenario import Scenario
from heliotrope_sim.demo.summary import summary
from heliotrope_sim.demo.table import comparison_table, levers_table, live_table
from heliotrope_sim.gateway.install import install_envoy

LATE_MILLISECONDS = 5.0


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What a run leaves behind."""

    summary: dict[str, Any]
    summary_path: Path
    report_path: Path


def run_demo(
    scenario: Scenario, output: Path, arms: Sequence[ArmName], console: Console, ablations: Sequence[Lever] = ()
) -> DemoResult:
    """Run the arms one after the other and write `summary.json` and `report.html` into `output`.

    Args:
        scenario: what is played.
        output: folder, made if it is not there.
        arms: which of the two ways of routing; ablations are compared with both.
        console: for the live tables.
        ablations: levers, for each of which Heliotrope runs once more without it.

    Raises:
        HeliotropeError: if a process does not come up or a data file is missing.
        KeyboardInterrupt: on Ctrl-C, after every child process has ended.
    """
    install_envoy(progress=console.print)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(play(scenario, output, arms, console, ablations))


async def play(
    scenario: Scenario, output: Path, arms: Sequence[ArmName], console: Console, ablations: Sequence[Lever] = ()
) -> DemoResult:
    """The same within a running loop, with Envoy installed."""
    planned, capacity = planned_requests(scenario)
    states = []
    for arm in (*(Arm(name) for name in arms), *(Arm(ArmName.HELIOTROPE, lever) for lever in ablations)):
        folder = _emptied(output / arm.key)
        state = await _shown(arm, scenario, planned, folder, console)
        states.append(state)
        write_requests(state, folder / "requests.jsonl")
    result = summary(states, scenario, capacity)
    written = _written(result, html(states, scenario, result), output)
    if "ratio" in result:
        console.print(comparison_table(result))
    if "ablations" in result:
        console.print(levers_table(result["ablations"]))
    lateness_ms = max(entry["mean_step_lateness_ms"] for entry in result["emulation"].values())
    if lateness_ms > LATE_MILLISECONDS:
        console.print(
            f"This machine was busy: emulated engine steps came {lateness_ms:.0f} ms late on average, which adds to "
            f"the latencies above and may cause SLO violations.",
            style="yellow",
        )
    console.print(f"Report:  {written.report_path}\nSummary: {written.summary_path}")
    return written


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _written(result: dict[str, Any], report: str, output: Path) -> DemoResult:
    summary_path, report_path = output / "summary.json", output / "report.html"
    summary_path.write_text(json.dumps(result, indent=2) + "\n")
    report_path.write_text(report)
    return DemoResult(result, summary_path, report_path)


def write_requests(state: ArmState, path: Path) -> None:
    """One JSON object a line: what the client saw of each request, with the picker's explanation if there is one."""
    explained = {decision["request_id"]: decision for decision in state.decisions}
    with path.open("w") as file:
        for result in state.results:
            row = {**asdict(result), "region": state.region_of(result), "decision": explained.get(result.request_id)}
            file.write(json.dumps(row) + "\n")


async def _shown(
    arm: Arm, scenario: Scenario, planned: Sequence[PlannedRequest], folder: Path, console: Console
) -> ArmState:
    loop = asyncio.get_running_loop()
    with Live(console=console, refresh_per_second=4, transient=False) as live:
        return await run_arm(
            arm,
            scenario,
            planned,
            folder,
            on_progress=lambda state: live.update(live_table(state, scenario, loop.time())),
        )
