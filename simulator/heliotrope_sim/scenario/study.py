"""Runs every policy at every point of a scenario, on as many processes or machines as there are."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from heliotrope_sim.fleet.perfetto import write
from heliotrope_sim.fleet.simulate import simulate
from heliotrope_sim.reproduce.workers import Workers
from heliotrope_sim.scenario.build import Built, all_files, build
from heliotrope_sim.scenario.files import Files
from heliotrope_sim.scenario.model import Scenario
from heliotrope_sim.scenario.outcome import Outcome, outcome
from heliotrope_sim.scenario.sweep import Point, points


@dataclass(frozen=True, slots=True)
class Run:
    """What one process is asked to do. It holds all that it needs."""

    scenario: Scenario
    files: Files
    arm: int
    quick: bool
    traced: bool


@dataclass(frozen=True, slots=True)
class Study:
    """A scenario, checked whole, that can be run."""

    scenario: Scenario
    points: tuple[Point, ...]
    built: Built
    """Of the first point."""
    files: Files
    quick: bool


@dataclass(frozen=True, slots=True)
class Cell:
    """What one policy gave at one point."""

    point: Point
    outcome: Outcome


def prepare(data: Mapping[str, Any], files: Files, *, quick: bool = False) -> Study:
    """Check everything that a scenario says, at every point of its sweep.

    Args:
        data: the scenario as plain data.
        files: the way to what it names.
        quick: a tenth of the time, and two values of each key of the sweep.

    Raises:
        InvalidInputError: names the key, or file and line, and says what to do.
    """
    found = points(data, quick=quick)
    contents: dict[str, bytes] = {}
    first: Built | None = None
    for point in found:
        kept = all_files(point.scenario, files)
        contents.update(kept.contents)
        built = build(point.scenario, kept, quick=quick)
        first = first or built
    assert first is not None
    return Study(found[0].scenario, found, first, Files(None, contents), quick)


def run(study: Study, workers: Workers, *, traced: bool = False) -> tuple[Cell, ...]:
    """Every policy at every point, point by point.

    Args:
        study: what to run.
        workers: where.
        traced: keep the first point's runs as traces.
    """
    tasks = [
        Run(point.scenario, all_files(point.scenario, study.files), arm, study.quick, traced and i == 0)
        for i, point in enumerate(study.points)
        for arm in range(len(point.scenario.policies))
    ]
    places = [point for point in study.points for _ in point.scenario.policies]
    outcomes = workers.map(study.scenario.name, play, tasks)
    return tuple(Cell(point, each) for point, each in zip(places, outcomes, strict=True))


def play(task: Run) -> Outcome:
    """Run one policy at one point."""
    built = build(task.scenario, task.files, quick=task.quick)
    arm = built.arms[task.arm]
    results = simulate(built.topology, replace(built.workload, classes=arm.classes), arm.settings)
    # Every arm is judged by the same promise, whatever it aims at.
    judged = replace(results, workload=built.workload)
    trace = None
    if task.traced:
        with tempfile.TemporaryDirectory(prefix="heliotrope-") as folder:
            path = Path(folder) / "trace.json"
            write(judged, path)
            trace = path.read_text(encoding="utf-8")
    return outcome(arm.name, arm.scheduler, judged, task.scenario.warm_up_seconds, trace)
