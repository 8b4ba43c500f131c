"""`heliotrope reproduce cleanest-grid`, from settings to the report."""

from heliotrope_sim.reproduce.experiment import Experiment, Settings
from heliotrope_sim.reproduce.grid.credit import CREDIT
from heliotrope_sim.reproduce.grid.forecast import FORECAST
from heliotrope_sim.reproduce.grid.headline import BASELINE, DRIVERS, HEADLINE
from heliotrope_sim.reproduce.grid.headroom import HEADROOM
from heliotrope_sim.reproduce.grid.intervals import INTERVALS
from heliotrope_sim.reproduce.grid.load import LOAD
from heliotrope_sim.reproduce.grid.prefix import PREFIX
from heliotrope_sim.reproduce.grid.pue import PUE
from heliotrope_sim.reproduce.grid.replay import place
from heliotrope_sim.reproduce.grid.seasons import SEASONAL
from heliotrope_sim.reproduce.grid.signal import SIGNAL
from heliotrope_sim.reproduce.grid.soft import SOFT
from heliotrope_sim.reproduce.grid.stale import STALE
from heliotrope_sim.reproduce.grid.study import Arms, Part, Study
from heliotrope_sim.reproduce.report import Report
from heliotrope_sim.reproduce.row import PERCENT
from heliotrope_sim.reproduce.workers import Workers

PARTS: tuple[Part, ...] = (
    HEADLINE,
    SOFT,
    DRIVERS,
    BASELINE,
    INTERVALS,
    SEASONAL,
    CREDIT,
    STALE,
    SIGNAL,
    FORECAST,
    HEADROOM,
    LOAD,
    PUE,
    PREFIX,
)
PAPER = "Routing LLM Inference to the Cleanest Grid in Real Time"
ILLUSTRATION = (
    "This is an illustration, not a reproduction: the paper's marginal rates are licensed from WattTime.",
    "Rates: made from average intensity by a model of curtailment, and part of what a result shows is built into it.",
    "With a WattTime account, --moer DIR runs the same on the real rates.",
    "Zones: 19 balancing areas of the United States, hourly, 2022; the paper has 19 of WattTime's, 2025 to 2026.",
    "Contains information from Electricity Maps, made available under the Open Database License.",
)
OWN_RATES = ("Rates: your own, from --moer.",)
DEMAND = "Demand: a mean week of Wikipedia's requests, repeated; the paper's generator is not in our copy."


def run(settings: Settings, workers: Workers) -> Report:
    """Place every year that a part asks for, once, and settle."""
    arms = Arms(settings)
    parts = [part for part in PARTS if settings.wants(part.name)]
    asked = [arms.round_robin(), *(each for part in parts for each in part.runs(arms))]
    runs = list(dict.fromkeys(asked))
    study = Study(arms, dict(zip(runs, workers.map("years", place, runs), strict=True)))
    own = settings.moer is not None
    return Report(
        experiment=CLEANEST_GRID.name,
        title=f"{PAPER}: {'paper and your rates' if own else 'an illustration on a model of curtailment'}",
        seed=settings.seed,
        quick=settings.quick,
        substitutes=(*(OWN_RATES if own else ILLUSTRATION), DEMAND, *_gaps(study)),
        rows=tuple(row for part in parts for row in part.rows(study)),
        sheets=tuple(sheet for part in parts for sheet in part.sheets(study)),
        pictures=tuple(picture for part in parts for picture in part.pictures(study)),
    )


def _gaps(study: Study) -> tuple[str, ...]:
    known = (study.rates.g_per_kwh == study.rates.g_per_kwh).all(axis=1)
    lost = len(known) - int(known.sum())
    if not lost:
        return ()
    share = lost / len(known) * PERCENT
    said = f"{lost:,} of {len(known):,} hours ({share:.1f} %) have no rate for some region"
    return (f"{said}: they go by pressure alone, and are in no figure under any policy.",)


CLEANEST_GRID = Experiment(
    name="cleanest-grid",
    source=f"{PAPER} (2026)",
    run=run,
    parts=tuple(part.name for part in PARTS),
    takes_moer=True,
)
