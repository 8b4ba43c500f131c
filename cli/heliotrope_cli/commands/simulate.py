"""`heliotrope simulate`: what would a policy do with my regions, my sites and my traffic?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from heliotrope.errors import InvalidInputError
from heliotrope_cli.commands.extras import needs
from heliotrope_cli.commands.parts import parts
from heliotrope_cli.tables import console

if TYPE_CHECKING:
    from heliotrope_sim.scenario.study import Cell, Study


def simulate(
    scenario: Path | None = None,
    /,
    *,
    out: Path | None = None,
    json_file: Annotated[Path | None, Parameter(name="--json")] = None,
    trace: Path | None = None,
    seed: int | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
    resume: Annotated[bool, Parameter(negative="--fresh")] = True,
    quick: Annotated[bool, Parameter(negative="")] = False,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    schema: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Simulate a scenario of your own: policies side by side on the same requests, their grams, joules and latencies.

    The schedulers are those of the picker, the engines are calibrated models; docs/simulate.md has the file's keys and
    examples/simulate has some that run. Everything is checked before anything runs.

    Args:
        scenario: A YAML file.
        out: Folder for report.html, with plots, and study.json; build/simulate/NAME-OF-THE-FILE if not given.
        json_file: Write all figures there.
        trace: Write the first point's runs there as traces that https://ui.perfetto.dev opens, one file per policy.
        seed: In place of the scenario's.
        jobs: Processes; as many as there are cores if not given.
        cluster: Run on a Dask cluster instead: its scheduler's address, tcp://scheduler:8786 for example.
        resume: Take runs that were finished before from the store; --fresh runs all of them anew.
        quick: A tenth of the workload's time, and two values of each key of a sweep.
        dry_run: Check everything and say what would run.
        schema: Print the JSON schema of a scenario, for editors, and stop.
    """
    with needs("sim"):
        from heliotrope_sim.scenario import reading
        from heliotrope_sim.scenario.document import to_json
        from heliotrope_sim.scenario.page import page
        from heliotrope_sim.scenario.study import prepare, run
        from heliotrope_sim.scenario.summary import summarise
        from heliotrope_sim.scenario.table import plan, show
    if schema:
        print(reading.schema(), end="")
        return
    if scenario is None:
        raise InvalidInputError("scenario", "give a file; examples/simulate has some, --schema prints the keys")
    data, files = reading.read(scenario)
    study = prepare(data if seed is None else {**data, "seed": seed}, files, quick=quick)
    if dry_run:
        plan(study, console())
        return
    with parts(jobs, cluster, resume=resume) as pool:
        cells = run(study, pool, traced=trace is not None)
    summary = summarise(study, cells)
    show(study, summary, console())
    text = to_json(study, cells, summary)
    folder = out if out is not None else Path("build/simulate") / scenario.stem
    written = [_write(folder / "report.html", page(study, cells, summary)), _write(folder / "study.json", text)]
    if json_file is not None:
        written.append(_write(json_file, text))
    if trace is not None:
        written += _write_traces(trace, study, cells)
    print("Written: " + ", ".join(str(path) for path in written))


def _write_traces(path: Path, study: "Study", cells: "tuple[Cell, ...]") -> list[Path]:
    """One file per policy; alone it gets the name as it is."""
    traced = [cell.outcome for cell in cells if cell.outcome.trace is not None]
    alone = len(study.scenario.policies) == 1
    written = []
    for i, each in enumerate(traced):
        word = "".join(c if c.isalnum() else "-" for c in each.policy.lower())
        target = path if alone else path.with_name(f"{path.stem}.{i + 1}-{word}{path.suffix or '.json'}")
        written.append(_write(target, each.trace or ""))
    return written


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
