"""What `heliotrope calibrate` says: the plan, how far it is, what was found and what to do with it."""

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from heliotrope_agent.calibrate.profile import PhaseProfile
    from heliotrope_agent.calibrate.record import Record
    from heliotrope_agent.calibrate.session import Plan, Session
    from heliotrope_agent.calibrate.sweep import Task

DRIFT_PERCENT = 2.0
"""Change of J/token at the first clock from which on it is worth a warning."""


def plan(planned: "Plan", session: "Session") -> list[str]:
    """What will be done."""
    record = planned.record
    sweep, subject = record.sweep, record.subject
    engine = f"vLLM {subject.engine_version}" if subject.engine_version else "of unknown version"
    lines = [f"Engine {subject.engine_url} ({engine}) serves {subject.model}."]
    if record.windows:
        lines.append(f"{len(record.windows)} windows are in {session.raw} already; it goes on from there.")
    lines.append(
        f"SM clocks {', '.join(map(str, sweep.clocks))} MHz, then up to {sweep.refinements} more per phase near the "
        f"least J/token, between {sweep.candidates[0]} and {sweep.candidates[-1]} MHz."
    )
    for phase, batch in sweep.loads:
        what = (
            f"{batch} prompts of {sweep.prompt_tokens} tokens in flight, answers of one token"
            if phase.value == "prefill"
            else f"{batch} sequences together after prompts of {sweep.decode_prompt_tokens} tokens"
        )
        lines.append(
            f"{phase.value}: {what}; {sweep.min_repeats} to {sweep.max_repeats} windows of {sweep.window_seconds:g} s "
            f"or more per clock, until ±{sweep.target_percent:g} %."
        )
    energy = "" if planned.most_kwh is None else f", at most {planned.most_kwh:.2f} kWh at the GPUs' power limits"
    lines.append(f"About {planned.left.steps} steps, {_span(_wall(planned.left.seconds, session))}{energy}.")
    lines.append(
        "The SM clocks of the GPUs below are locked meanwhile and put back at the end, also after Ctrl-C; their power "
        "limits and memory clocks stay."
    )
    return [*lines, *(f"Note: {remark}." for remark in planned.remarks)]


def gpu_table(planned: "Plan") -> Table:
    """The GPUs that are changed."""
    table = Table("GPU", "UUID", "Product", "SM clocks", box=None)
    for device in planned.devices:
        clocks = device.sm_clocks_mhz
        table.add_row(str(device.index), device.uuid, device.product, f"{clocks[0]}-{clocks[-1]} MHz")
    return table


class Watch:
    """Progress: a bar with the time that is left, or a line per step where there is no terminal."""

    def __init__(self, console: Console, planned: "Plan", session: "Session") -> None:
        self._console = console
        self._session = session
        self._planned_s = _wall(planned.left.seconds, session)
        self._start_s = time.monotonic()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[left]} left"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._bar = self._progress.add_task("starting", total=1.0, left=_span(self._planned_s))

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begun(self, task: "Task", record: "Record") -> None:
        """A task begins."""
        from heliotrope_agent.calibrate.sweep import estimate

        elapsed_s = time.monotonic() - self._start_s
        left_s = _wall(estimate(record.sweep, record).seconds, self._session)
        done_s = self._planned_s - left_s
        if done_s > 0.1 * self._planned_s:  # by then it is known how good the plan was
            left_s *= min(max(elapsed_s / done_s, 0.3), 5.0)
        self._progress.update(
            self._bar,
            description=_task(task),
            completed=elapsed_s,
            total=elapsed_s + left_s,
            left=_span(left_s),
        )
        if not self._console.is_terminal:
            self._console.print(f"{_task(task)}; about {_span(left_s)} left", markup=False, soft_wrap=True)


def results(record: "Record", found: "Sequence[PhaseProfile]") -> list[str]:
    """What was found, and what is to be known about it."""
    lines = []
    for each in found:
        best = next(point for point in each.points if point.mhz == each.best_mhz)
        top = each.points[-1]
        saved = 100.0 * (1.0 - best.joules_per_token / top.joules_per_token)
        equal = ""
        if len(each.equal_mhz) > 1:
            equal = f"; {each.equal_mhz[0]} to {each.equal_mhz[-1]} MHz cannot be told apart"
        lines.append(
            f"{each.phase.value}, batch {each.batch}: least J/token at {each.best_mhz} MHz, {saved:.1f} % less than at "
            f"{top.mhz} MHz{equal}."
        )
        if each.drift_percent is None:
            lines.append(f"Warning: {each.phase.value}: whether anything drifted meanwhile is unknown.")
        elif abs(each.drift_percent) > DRIFT_PERCENT:
            lines.append(
                f"Warning: {each.phase.value}: J/token at {record.sweep.clocks[0]} MHz changed by "
                f"{each.drift_percent:+.1f} % from beginning to end; let the GPUs warm up, or check their cooling."
            )
        if each.left_out_mhz:
            lines.append(
                f"Warning: {each.phase.value} at {', '.join(map(str, each.left_out_mhz))} MHz is not in the profile: "
                "no window there counts."
            )
    return [*lines, *(f"Note: {note}." for note in record.notes)]


def tables(found: "Sequence[PhaseProfile]") -> list[Table]:
    """The profile, a table per phase."""
    made = []
    for each in found:
        table = Table(
            "MHz", "tokens/s", "J/token", "±", "above idle", "W", "idle W", "ms/token", "windows", "", box=None,
            title=f"{each.phase.value}, batch {each.batch}", title_justify="left",
        )  # fmt: skip
        for column in table.columns[:-1]:
            column.justify = "right"
        for point in reversed(each.points):
            above = point.joules_per_token_above_idle
            table.add_row(
                str(point.mhz),
                f"{point.tokens_per_second:,.0f}",
                f"{point.joules_per_token:.4g}",
                "?" if math.isnan(point.uncertainty_percent) else f"{point.uncertainty_percent:.1f} %",
                "?" if above is None else f"{above:.4g}",
                f"{point.watts:.0f}",
                "?" if point.idle_watts is None else f"{point.idle_watts:.0f}",
                "" if point.seconds_per_token is None else f"{point.seconds_per_token * 1_000:.1f}",
                str(point.windows),
                ("best" if point.mhz == each.best_mhz else "") + (" power limit" if point.power_capped else ""),
            )
        made.append(table)
    return made


def next_steps(session: "Session", variant: str | None, namespace: str | None, *, whole: bool) -> list[str]:
    """How to use what was written."""
    lines = [f"Every window is in {session.raw}."]
    if whole:
        return [*lines, f"The variant is in {session.profile}: kubectl apply -f {session.profile}"]
    where = f"-n {namespace} " if namespace else ""
    command = f"kubectl patch {where}workloadvariant {variant or 'NAME'} --type merge --patch-file {session.profile}"
    return [*lines, f"The profile is in {session.profile}: {command}"]


def _task(task: "Task") -> str:
    if task.phase is None:
        return f"{task.mhz} MHz, idle"
    kind = {"pilot": "trial of ", "drift": "again: "}.get(task.work.value, "")
    return f"{task.mhz} MHz, {kind}{task.phase.value} with batch {task.batch}"


def _wall(engine_seconds: float, session: "Session") -> float:
    return session.pace.wall_seconds(engine_seconds)


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5_400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h"
