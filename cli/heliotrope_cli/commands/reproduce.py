"""`heliotrope reproduce`: re-run a published study and print its figures beside ours."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from heliotrope_cli.commands.extras import needs
from heliotrope_cli.commands.parts import parts
from heliotrope_cli.tables import console


def reproduce(
    experiment: str | None = None,
    /,
    *,
    quick: Annotated[bool, Parameter(negative="")] = False,
    seed: int = 7,
    jobs: int | None = None,
    cluster: str | None = None,
    resume: Annotated[bool, Parameter(negative="--fresh")] = True,
    json_file: Annotated[Path | None, Parameter(name="--json")] = None,
    out: Path | None = None,
    figure: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    moer: Path | None = None,
) -> None:
    """Re-run a published study on Heliotrope's own code and print the paper's figures beside ours.

    Without an experiment it lists those there are. Where an input of the paper cannot be had, the run uses a public
    substitute and says so; then the order, the sign and the trend are judged and the number is reported.

    Args:
        experiment: Its name.
        quick: Smaller samples on the same code path, within a minute on two cores; order and sign are judged.
        seed: Of everything that is drawn; the same seed gives the same rows.
        jobs: Processes; as many as there are cores if not given.
        cluster: Run on a Dask cluster instead: its scheduler's address, tcp://scheduler:8786 for example.
        resume: Take parts that were finished before from the store; --fresh runs all of them anew.
        json_file: Write the rows there: a list with one object per figure.
        out: Folder for report.html, with plots, and rows.json; build/reproduce/EXPERIMENT if not given.
        figure: Only rows, tables and plots whose ids or titles begin so; may be given several times.
        moer: Folder with marginal emission rates that you have a licence for, one file per region (cleanest-grid).
    """
    with needs("sim"):
        from heliotrope_sim.reproduce.experiment import Settings
        from heliotrope_sim.reproduce.registry import EXPERIMENTS, find
        from heliotrope_sim.reproduce.report import show
    if experiment is None:
        for each in EXPERIMENTS.values():
            print(f"{each.name}  {each.source}")
        return
    chosen = find(experiment)
    settings = Settings(seed=seed, quick=quick, figures=figure, moer=moer)
    chosen.check(settings)
    with parts(jobs, cluster, resume=resume) as pool:
        report = chosen.run(settings, pool).only(figure)
    show(report, console())
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(report.to_json(), encoding="utf-8")
    page = report.write(out if out is not None else Path("build/reproduce") / chosen.name)
    print(f"Report: {page}")
