"""`heliotrope evaluate`: how good estimates are, measured."""

import json
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from rich.console import Console
from rich.progress import track

from heliotrope.errors import HeliotropeError, InvalidInputError
from heliotrope_cli.commands.extras import needs
from heliotrope_cli.output import show

evaluate = App(name="evaluate", help="Measure how good Heliotrope's estimates are.")


class TargetsMissedError(HeliotropeError):
    """`--strict` was asked for, and a target was missed."""


@evaluate.command
def predictors(
    *,
    quick: Annotated[bool, Parameter(negative="")] = False,
    seed: int = 7,
    json_file: Annotated[Path | None, Parameter(name="--json")] = None,
    report: Path | None = None,
    strict: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Train the learned predictors on load sweeps of emulated engines and score them on sweeps they have not seen.

    TTFT, TPOT, energy of steps and requests, quantiles and answer lengths, beside the analytic model; by load, without
    groups of features, on unseen hardware, after drift, and on published measurements of real accelerators. Targets
    are printed as met or missed. The same seed gives the same figures, but for the microseconds.

    Args:
        quick: Fewer runs: within a minute on two cores.
        seed: Of loads, lengths, miscalibration and models.
        json_file: Write every figure there.
        report: Write an HTML report with plots there.
        strict: Exit with an error if a target is missed.
    """
    with needs("all"):
        from heliotrope_cli.picker_view import EndpointView
        from heliotrope_sim.evaluation.report import show as show_evaluation
        from heliotrope_sim.evaluation.run import Settings
        from heliotrope_sim.evaluation.run import evaluate as run_evaluation
        from heliotrope_sim.evaluation.targets import Met
    console = Console()
    settings = Settings.of(seed, quick=quick, plots=report is not None)
    evaluation = run_evaluation(settings, EndpointView, Console(stderr=True))
    show_evaluation(evaluation, console)
    if json_file is not None:
        _write(json_file, json.dumps(evaluation.to_json(), indent=1, ensure_ascii=False) + "\n")
    if report is not None:
        _write(report, evaluation.page)
    missed = [key for key, met in evaluation.verdicts.items() if met is not Met.MET]
    if strict and missed:
        raise TargetsMissedError(f"targets not met: {', '.join(missed)}")


@evaluate.command
def forecast(
    *,
    quick: Annotated[bool, Parameter(negative="")] = False,
    zones: Annotated[tuple[str, ...], Parameter(name="--zone", negative_iterable="")] = (),
    boosted: Annotated[bool, Parameter(negative="")] = False,
    json_file: Annotated[Path | None, Parameter(name="--json")] = None,
    markdown: Path | None = None,
    strict: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Score forecasts of carbon intensity on recorded zones against "as at the same hour yesterday".

    Held out by time: from 120 days of 2022 each, one to 72 hours ahead of many hours of the weeks after. Prints errors,
    how often the truth is within the interval of 80 %, and which method was used. The same every time.

    Args:
        quick: Six zones and fewer origins.
        zones: Only this zone; may be given several times.
        boosted: Also train LightGBM on the same inputs, for comparison.
        json_file: Write every figure there.
        markdown: Write the tables there as a page.
        strict: Exit with an error if forecasts err more than yesterday on average over the zones.
    """
    with needs("sim"):
        from heliotrope_sim.evaluation.forecast import report
        from heliotrope_sim.evaluation.forecast.boosted import Boosted
        from heliotrope_sim.evaluation.forecast.study import QUICK_ZONES, Settings, evaluate_zone
        from heliotrope_sim.evaluation.forecast.zones import zones as recorded
    years = recorded()
    for zone in zones:
        if zone not in years:
            raise InvalidInputError("--zone", f"{zone!r} is not recorded; there are: {', '.join(years)}")
    chosen = zones or (QUICK_ZONES if quick else tuple(years))
    settings = Settings.of(quick=quick, rivals=(Boosted(),) if boosted else ())
    progress = Console(stderr=True)
    results = [
        evaluate_zone(zone, years[zone], settings)
        for zone in track(chosen, "zones", console=progress, transient=True, disable=not progress.is_terminal)
    ]
    show([report.summary(results)], report.tables(results))
    if json_file is not None:
        _write(json_file, json.dumps(report.document(results), indent=1) + "\n")
    if markdown is not None:
        options = [*(["--quick"] if quick else []), *(["--boosted"] if boosted else [])]
        options += [f"--zone {zone}" for zone in zones]
        command = " ".join(["heliotrope evaluate forecast", *options, f"--markdown {markdown}"])
        _write(markdown, report.markdown(results, command))
    if strict and sum(each.ratio for each in results) >= len(results):
        raise TargetsMissedError("forecasts err more than yesterday on average")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
