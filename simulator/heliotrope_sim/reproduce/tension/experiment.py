"""`heliotrope reproduce carbon-slo`, from settings to the report."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from heliotrope_sim.reproduce.experiment import Experiment, Settings
from heliotrope_sim.reproduce.report import Picture, Report, Sheet
from heliotrope_sim.reproduce.row import Row
from heliotrope_sim.reproduce.tension import anchors, answers, loads, pictures, shapes, sights, speed, spread
from heliotrope_sim.reproduce.tension.by_load import load_rows
from heliotrope_sim.reproduce.tension.case import COMPILED, Case, play, prepare
from heliotrope_sim.reproduce.tension.greedy import greedy_rows
from heliotrope_sim.reproduce.tension.plan import Found, Plan, plan
from heliotrope_sim.reproduce.tension.standing import standing_rows
from heliotrope_sim.reproduce.tension.tails import tail_rows
from heliotrope_sim.reproduce.workers import Workers

TITLE = "The carbon–SLO tension (Topcu et al., arXiv:2610.14571): paper and ours"
SUBSTITUTES = (
    "Engines: the paper prints no coefficients; ours are fitted to public measurements (docs/engine-models.md).",
    "Qwen2.5-7B on one A100 and Mixtral's prefill were measured by nobody who publishes it.",
    "CNN-DailyMail, OpenOrca, GovReport: lengths are log-normal with the paper's means and assumed variations.",
    "Carbon intensity: Electricity Maps, hourly, 2022 (paper: 2021 to 2024), at the hour of the median spread.",
    "Of the sixteen zones the paper names six. Single sites' PUEs are the paper's where it prints them, else assumed.",
    "Runs are shorter than the paper's 200 s; their first seconds are left out.",
    "The paper does not say what schedulers count between polls. Ours project their own dispatches and their peers'.",
    "Decisions take what the work that they report is modelled to take; solvers are limited by work, not by seconds.",
    "The engine activator is not part of this study; idle engines stay awake.",
)


@dataclass(frozen=True, slots=True)
class _Part:
    """What belongs together: the runs that it needs and what is said of them."""

    ids: tuple[str, ...]
    cases: Callable[[Plan], Sequence[Case]]
    rows: Callable[[Plan, Found], Sequence[Row]]
    sheets: Callable[[Plan, Found], tuple[Sheet, ...]]
    pictures: Callable[[Plan, Found], tuple[Picture, ...]]


def _nothing(_plan: Plan, _found: Found) -> tuple[Sheet, ...]:
    return ()


def _no_picture(_plan: Plan, _found: Found) -> tuple[Picture, ...]:
    return ()


def _load_rows(sizes: Plan, found: Found) -> list[Row]:
    view = loads.Loads(sizes, found)
    return [
        *load_rows(view),
        *greedy_rows(view),
        *tail_rows(view),
        *standing_rows(view),
        *speed.decide_rows(view),
        *speed.speed_rows(view),
    ]


def _load_sheets(sizes: Plan, found: Found) -> tuple[Sheet, ...]:
    view = loads.Loads(sizes, found)
    return loads.load_sheet(view), speed.speed_sheet(view)


PARTS = (
    _Part(
        ("load", "greedy", "tail", "standing", "decide", "beyond/speed"),
        loads.cases,
        _load_rows,
        _load_sheets,
        lambda sizes, found: pictures.load_pictures(loads.Loads(sizes, found)),
    ),
    _Part(
        ("sight",),
        sights.sight_cases,
        sights.sight_rows,
        lambda sizes, found: (sights.sight_sheet(sizes, found),),
        _no_picture,
    ),
    _Part(
        ("poll", "beyond/projection"),
        sights.poll_cases,
        lambda sizes, found: [*sights.poll_rows(sizes, found), *sights.beyond_rows(sizes, found)],
        lambda sizes, found: (sights.poll_sheet(sizes, found),),
        lambda sizes, found: (pictures.poll_picture(sizes, found),),
    ),
    _Part(
        ("spread",),
        spread.spread_cases,
        spread.spread_rows,
        _nothing,
        lambda sizes, found: (pictures.spread_picture(sizes, found),),
    ),
    _Part(
        ("shape",),
        shapes.shape_cases,
        shapes.shape_rows,
        _nothing,
        lambda sizes, found: (pictures.shape_picture(sizes, found),),
    ),
    _Part(
        ("pue",),
        shapes.pue_cases,
        shapes.pue_rows,
        _nothing,
        lambda sizes, found: (pictures.pue_picture(sizes, found),),
    ),
    _Part(
        ("osl",),
        answers.guess_cases,
        answers.guess_rows,
        _nothing,
        lambda sizes, found: (pictures.guess_picture(sizes, found),),
    ),
    _Part(
        ("prompts",),
        answers.prompt_cases,
        answers.prompt_rows,
        _nothing,
        lambda sizes, found: (pictures.prompt_picture(sizes, found),),
    ),
)
ANCHOR = "anchor"


def run(settings: Settings, workers: Workers) -> Report:
    """Every run once, then what is said of them."""
    return report_of(plan(settings), settings, workers)


def report_of(sizes: Plan, settings: Settings, workers: Workers) -> Report:
    """The report of runs of these sizes."""
    rows: list[Row] = []
    workers.map("machine code", prepare, COMPILED)
    if settings.wants(ANCHOR):
        rates = [anchors.Rate(rate, sizes.anchor_requests, sizes.seed) for rate in sizes.anchor_rates]
        rows += anchors.anchor_rows(workers.map("anchors", anchors.measure, rates))
    parts = [part for part in PARTS if any(settings.wants(each) for each in part.ids)]
    cases = sizes.with_baselines(case for part in parts for case in part.cases(sizes))
    # The longest first, so that no process is left alone with one at the end.
    cases.sort(key=lambda case: -case.rate * case.share * case.seconds)
    found = Found(sizes, dict(zip(cases, workers.map("runs", play, cases), strict=True)))
    sheets: list[Sheet] = []
    drawn: list[Picture] = []
    for part in parts:
        rows += part.rows(sizes, found)
        sheets += part.sheets(sizes, found)
        drawn += part.pictures(sizes, found)
    return Report(
        experiment=CARBON_SLO.name,
        title=TITLE,
        seed=sizes.seed,
        quick=sizes.quick,
        substitutes=SUBSTITUTES,
        rows=tuple(rows),
        sheets=tuple(sheets),
        pictures=tuple(drawn),
    )


CARBON_SLO = Experiment(
    name="carbon-slo",
    source="Topcu et al., Dissecting the Carbon–SLO Tension in Geo-Distributed LLM Serving (2026)",
    run=run,
    parts=(ANCHOR, *(each for part in PARTS for each in part.ids)),
)
