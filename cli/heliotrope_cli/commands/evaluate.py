"""`heliotrope evaluate`: how good estimates are, measured."""

import json
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from rich.console import Console

from heliotrope.errors import HeliotropeError
from heliotrope_cli.commands.extras import needs

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
        from heliotrope_sim.evaluation.report import show
        from heliotrope_sim.evaluation.run import Settings
        from heliotrope_sim.evaluation.run import evaluate as run_evaluation
        from heliotrope_sim.evaluation.targets import Met
    console = Console()
    settings = Settings.of(seed, quick=quick, plots=report is not None)
    evaluation = run_evaluation(settings, EndpointView, Console(stderr=True))
    show(evaluation, console)
    if json_file is not None:
        _write(json_file, json.dumps(evaluation.to_json(), indent=1, ensure_ascii=False) + "\n")
    if report is not None:
        _write(report, evaluation.page)
    missed = [key for key, met in evaluation.verdicts.items() if met is not Met.MET]
    if strict and missed:
        raise TargetsMissedError(f"targets not met: {', '.join(missed)}")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
