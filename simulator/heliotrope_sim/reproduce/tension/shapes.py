"""Other topologies and other buildings (§V-C, figures 6c and 5a)."""

from dataclasses import replace

from heliotrope_sim.reproduce.row import Row
from heliotrope_sim.reproduce.tension.case import BASE, EIGHT_SCHEDULERS, LARGE_SITES, SHAPES, Case
from heliotrope_sim.reproduce.tension.models import LLAMA, MIXTRAL, Served
from heliotrope_sim.reproduce.tension.plan import Found, Plan
from heliotrope_sim.reproduce.tension.policies import FACILITY, GREEDY_0, ILP, Sight

HOUSED = (LLAMA, MIXTRAL)
HOUSED_POLICIES = (GREEDY_0, ILP, FACILITY)
PAPER_PUE = {"llama": (29.2, 30.5), "mixtral": (36.6, 38.7)}
PAPER_SHAPES = {BASE: (29.2, 10.3), EIGHT_SCHEDULERS: (29.2, 19.4), LARGE_SITES: (23.2, 4.1)}
"""Saving and violation. For eight schedulers it prints that savings are almost unchanged."""
NAMES = {BASE: "base", EIGHT_SCHEDULERS: "eight", LARGE_SITES: "large"}
UNCHANGED_POINTS = 1.0


def shape_case(plan: Plan, shape: str, sight: Sight) -> Case:
    """Facility on Llama at high load."""
    return replace(plan.swept(LLAMA, LLAMA.rate("high"), FACILITY), shape=shape, sight=sight)


def shape_cases(plan: Plan) -> list[Case]:
    """Every shape with every knowledge."""
    return [shape_case(plan, shape, sight) for shape in SHAPES for sight in Sight]


def pue_case(plan: Plan, model: Served, policy: str, *, real: bool) -> Case:
    """High load with one PUE or with each site's own."""
    return replace(plan.swept(model, model.rate("high"), policy), real_pue=real)


def pue_cases(plan: Plan) -> list[Case]:
    """Three policies, two models."""
    return [
        pue_case(plan, model, policy, real=real)
        for model in HOUSED
        for policy in HOUSED_POLICIES
        for real in (False, True)
    ]


def shape_rows(plan: Plan, found: Found) -> list[Row]:
    """Savings and violations by shape."""
    rows = []
    for shape in SHAPES:
        case = shape_case(plan, shape, Sight.ALL)
        saved, missed = PAPER_SHAPES[shape]
        rows += [
            Row(
                f"shape/{NAMES[shape]}/saving",
                f"{FACILITY}, {shape}: CO2 saved",
                saved,
                found.saving(case),
                "%",
                None,
            ),
            Row(
                f"shape/{NAMES[shape]}/violation",
                f"{FACILITY}, {shape}: violation",
                missed,
                found.violation(case),
                "%",
                None,
            ),
        ]
    seen = {
        (shape, sight): (
            found.saving(shape_case(plan, shape, sight)),
            found.violation(shape_case(plan, shape, sight)),
        )
        for shape in SHAPES
        for sight in Sight
    }
    other = seen[LARGE_SITES, Sight.ALL][0] - seen[BASE, Sight.ALL][0]
    rows.append(
        Row(
            "shape/large/saving-change",
            f"{FACILITY}, {LARGE_SITES}: CO2 saved against base",
            -6.0,
            other,
            "points",
            other < 0.0,
            "judged: sign. Which sites are left is ours: every other zone of a region",
        )
    )
    for shape, paper in ((EIGHT_SCHEDULERS, 9.1), (LARGE_SITES, -6.2)):
        for sight in (Sight.OWN, Sight.ALL):
            change = seen[shape, sight][1] - seen[BASE, sight][1]
            judged = sight is Sight.OWN and not plan.quick
            rows.append(
                Row(
                    f"shape/{NAMES[shape]}/violation-change/{sight.name.lower()}",
                    f"{FACILITY}, {shape}: violation against base, knowing {sight}",
                    paper,
                    change,
                    "points",
                    change * paper > 0.0 if judged else None,
                    "judged in a full run: sign" if sight is Sight.OWN else "none herd, so there is little to change",
                )
            )
    return rows


def pue_rows(plan: Plan, found: Found) -> list[Row]:
    """Savings and violations with real PUEs."""
    rows = []
    for model in HOUSED:
        uniform, real = (found.saving(pue_case(plan, model, FACILITY, real=r)) for r in (False, True))
        paper = PAPER_PUE[model.name]
        rows.append(
            Row(
                f"pue/{model.name}",
                f"{FACILITY}: more saved with real PUEs, {model.title}, high load",
                round(paper[1] - paper[0], 1),
                real - uniform,
                "points",
                real > uniform,
                f"{uniform:.1f} to {real:.1f} % (paper: {paper[0]} to {paper[1]}); judged: sign. PUEs are the paper's "
                "where it prints them, else assumed; no site is replaced, as the paper names none of the three",
            )
        )
    changes = [
        abs(
            found.violation(pue_case(plan, model, policy, real=True))
            - found.violation(pue_case(plan, model, policy, real=False))
        )
        for model in HOUSED
        for policy in HOUSED_POLICIES
    ]
    rows.append(
        Row(
            "pue/violation",
            "Real PUEs change violations by at most",
            "nearly unchanged",
            max(changes),
            "points",
            max(changes) <= UNCHANGED_POINTS,
            f"judged: within {UNCHANGED_POINTS:g} point, of {len(HOUSED_POLICIES)} policies and {len(HOUSED)} models",
        )
    )
    return rows
