"""Runs the demo from beginning to report."""

import asyncio
import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import uvloop
from rich.console import Console
from rich.live import Live

from heliotrope.engine import profiles
from heliotrope_sim.data import data_file
from heliotrope_sim.demo.arm import ArmName, ArmState, run_arm
from heliotrope_sim.demo.client import PlannedRequest, plan
from heliotrope_sim.demo.report import html
from heliotrope_sim.demo.scenario import Scenario
from heliotrope_sim.demo.sizing import saturated_requests_per_second
from heliotrope_sim.demo.summary import summary
from heliotrope_sim.demo.table import comparison_table, live_table
from heliotrope_sim.gateway.install import install_envoy
from heliotrope_sim.workload.trace import load_azure, stretch

LATE_MILLISECONDS = 5.0


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What a run leaves behind."""

    summary: dict[str, Any]
    summary_path: Path
    report_path: Path


def run_demo(scenario: Scenario, output: Path, arms: Sequence[ArmName], console: Console) -> DemoResult:
    """Run the arms one after the other and write `summary.json` and `report.html` into `output`.

    Raises:
        HeliotropeError: if a process does not come up or a data file is missing.
        KeyboardInterrupt: on Ctrl-C, after every child process has ended.
    """
    install_envoy(progress=console.print)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(play(scenario, output, arms, console))


async def play(scenario: Scenario, output: Path, arms: Sequence[ArmName], console: Console) -> DemoResult:
    """The same within a running loop, with Envoy installed."""
    planned, capacity = planned_requests(scenario)
    states = []
    for name in arms:
        folder = _emptied(output / name.value)
        state = await _shown(name, scenario, planned, folder, console)
        states.append(state)
        write_requests(state, folder / "requests.jsonl")
    result = summary(states, scenario, capacity)
    written = _written(result, html(states, scenario, result), output)
    if len(states) == len(ArmName):
        console.print(comparison_table(result))
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


def planned_requests(scenario: Scenario) -> tuple[list[PlannedRequest], float]:
    """The requests of every arm, and what the fleet completes per second when saturated with them."""
    trace = load_azure(data_file(scenario.trace))
    model = replace(profiles.load(scenario.profile), max_num_seqs=scenario.max_num_seqs)
    engines = sum(region.engines for region in scenario.regions)
    capacity = engines * saturated_requests_per_second(model, trace[scenario.trace_skip :])
    requests = stretch(
        trace,
        skip=scenario.trace_skip,
        rate_per_second=scenario.load * capacity,
        seconds=scenario.arrival_seconds,
    )
    planned = plan(requests, model=scenario.model, stream_share=scenario.stream_share, seed=scenario.seed)
    return planned, capacity


def write_requests(state: ArmState, path: Path) -> None:
    """One JSON object a line: what the client saw of each request, with the picker's explanation if there is one."""
    explained = {decision["request_id"]: decision for decision in state.decisions}
    with path.open("w") as file:
        for result in state.results:
            row = {**asdict(result), "region": state.region_of(result), "decision": explained.get(result.request_id)}
            file.write(json.dumps(row) + "\n")


async def _shown(
    name: ArmName, scenario: Scenario, planned: Sequence[PlannedRequest], folder: Path, console: Console
) -> ArmState:
    loop = asyncio.get_running_loop()
    with Live(console=console, refresh_per_second=4, transient=False) as live:
        return await run_arm(
            name,
            scenario,
            planned,
            folder,
            on_progress=lambda state: live.update(live_table(state, scenario, loop.time())),
        )
