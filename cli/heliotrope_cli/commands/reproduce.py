"""`heliotrope reproduce`: re-run a published study and print its figures beside ours."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from heliotrope_cli.commands.extras import needs
from heliotrope_cli.tables import console


def reproduce(
    experiment: str | None = None,
    /,
    *,
    quick: Annotated[bool, Parameter(negative="")] = False,
    seed: int = 7,
    jobs: int | None = None,
    json_file: Annotated[Path | None, Parameter(name="--json")] = None,
    out: Path | None = None,
) -> None:
    """Re-run a published study on Heliotrope's own code and print the paper's figures beside ours.

    Without an experiment it lists those there are. Where an input of the paper cannot be had, the run uses a public
    substitute and says so; then the order, the sign and the trend are judged and the number is reported.

    Args:
        experiment: Its name.
        quick: Smaller samples on the same code path, within a minute on two cores; order and sign are judged.
        seed: Of everything that is drawn; the same seed gives the same rows.
        jobs: Processes; as many as there are cores if not given.
        json_file: Write the rows there: a list with one object per figure.
        out: Folder for report.html, with plots, and rows.json; build/reproduce/EXPERIMENT if not given.
    """
    with needs("sim"):
        from heliotrope_sim.reproduce.experiment import Settings
        from heliotrope_sim.reproduce.registry import EXPERIMENTS, find
        from heliotrope_sim.reproduce.report import show
        from heliotrope_sim.reproduce.workers import available_cores, workers
    if experiment is None:
        for each in EXPERIMENTS.values():
            print(f"{each.name}  {each.source}")
        return
    chosen = find(experiment)
    with workers(jobs if jobs is not None else available_cores(), Console(stderr=True)) as pool:
        report = chosen.run(Settings(seed=seed, quick=quick), pool)
    show(report, console())
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(report.to_json(), encoding="utf-8")
    page = report.write(out if out is not None else Path("build/reproduce") / chosen.name)
    print(f"Report: {page}")
