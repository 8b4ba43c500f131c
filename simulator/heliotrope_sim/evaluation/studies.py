"""What hardware, power and the analytic model are worth: leave one hardware out, leave one group of features out."""

from collections.abc import Callable, Collection

import numpy as np

from heliotrope.predict.features import Group
from heliotrope.predict.models import LearnedModels
from heliotrope_sim.evaluation.held_out import Answers, masks, request_scores, step_scores
from heliotrope_sim.evaluation.regimes import Regime
from heliotrope_sim.evaluation.report import Cell, Section
from heliotrope_sim.evaluation.rows import Bools, Requests, Steps
from heliotrope_sim.evaluation.scores import Score, mape
from heliotrope_sim.evaluation.training import models_of

LONG_ANSWER = 64
"""Tokens from which on the time per token is little moved by when its neighbours' prefills fall."""

_ERRORS = ("ttft_mape", "ttft_mape_around", "tpot_mape", "request_energy_mape")
_COLUMNS = ("TTFT below", "TTFT around", "TPOT below", "request energy", "step energy")
_HIDDEN: tuple[tuple[str, Collection[Group]], ...] = (
    ("all features", ()),
    ("without hardware", (Group.HARDWARE,)),
    ("without power and clock", (Group.POWER,)),
    ("without hardware, power, clock", (Group.HARDWARE, Group.POWER)),
    ("without analytic estimates", (Group.ANALYTIC,)),
    ("without state", (Group.STATE,)),
)


def ablations(
    training: tuple[Requests, Steps], held_out: tuple[Requests, Steps], seed: int, done: Callable[[], None]
) -> Section:
    """Errors when groups of features are hidden (research question 1)."""
    rows: list[tuple[Cell, ...]] = []
    for name, hidden in _HIDDEN:
        models = models_of(*training, seed, without=hidden)
        scores = request_scores(Answers.of(models, held_out[0]), seed)
        steps, _ = step_scores(models, held_out[1], seed)
        rows.append((name, *(scores[key] for key in _ERRORS), steps))
        done()
    return Section(
        "ablation",
        "Ablation: error without groups of features",
        ("features", *_COLUMNS),
        tuple(rows),
        "Request energy at the given length, below saturation.",
    )


def leave_one_hardware_out(
    training: tuple[Requests, Steps], held_out: tuple[Requests, Steps], seed: int, done: Callable[[], None]
) -> Section:
    """Errors on a kind of accelerator that no training sample came from."""
    rows: list[tuple[Cell, ...]] = []
    with_it = models_of(*training, seed)
    for hardware in np.unique(held_out[0].hardware):
        kept = training[0].where(training[0].hardware != hardware), training[1].where(training[1].hardware != hardware)
        requests = held_out[0].where((held_out[0].hardware == hardware) & held_out[0].profiled)
        steps = held_out[1].where(held_out[1].hardware == hardware)
        models = models_of(*kept, seed)
        rows.append((f"{hardware}, unseen", *_errors(models, requests, steps, seed)))
        rows.append((f"{hardware}, seen", *_errors(with_it, requests, steps, seed)))
        scores = request_scores(Answers.analytic(requests), seed)
        rows.append((f"{hardware}, analytic", *(scores[key] for key in _ERRORS), step_scores(models, steps, seed)[1]))
        done()
    return Section(
        "leave_one_hardware_out",
        "Leave one hardware out (endpoints with a profile)",
        ("hardware", *_COLUMNS),
        tuple(rows),
    )


def _errors(models: LearnedModels, requests: Requests, steps: Steps, seed: int) -> tuple[Score, ...]:
    scores = request_scores(Answers.of(models, requests), seed)
    return (*(scores[key] for key in _ERRORS), step_scores(models, steps, seed)[0])


def _slice(answers: Answers, chosen: Bools, seed: int) -> tuple[Score, Score, Score]:
    r = answers.requests
    return (
        mape(r.ttft_seconds[chosen], answers.ttft[chosen], r.run[chosen], seed),
        mape(r.tpot_seconds[chosen], answers.tpot[chosen], r.run[chosen], seed),
        mape(r.joules[chosen], answers.joules[chosen], r.run[chosen], seed),
    )


def slices(learned: Answers, analytic: Answers, seed: int) -> Section:
    """Errors below saturation by what may matter: profile, other pickers, hardware, application, length, load."""
    r = learned.requests
    below = masks(r)[Regime.BELOW]
    cuts: list[tuple[str, Bools]] = [("profiled", below & r.profiled), ("no profile", below & ~r.profiled)]
    cuts += [("one picker", below & r.alone), ("another picker too", below & ~r.alone)]
    cuts += [(str(h), below & (r.hardware == h)) for h in np.unique(r.hardware)]
    cuts += [(str(a), below & (r.application == a)) for a in np.unique(r.application)]
    cuts += [("answers ≥ 64 tokens", below & (r.output_tokens >= LONG_ANSWER))]
    cuts += [(f"load {load:.2f}", r.utilisation == load) for load in np.unique(r.utilisation)]
    rows: list[tuple[Cell, ...]] = []
    for name, chosen in cuts:
        pairs = zip(_slice(learned, chosen, seed), _slice(analytic, chosen, seed), strict=True)
        rows.append((name, *(score for pair in pairs for score in pair)))
    return Section(
        "slices",
        "Error by slice (below saturation, and by load)",
        ("slice", "TTFT", "TTFT analytic", "TPOT", "TPOT analytic", "energy", "energy analytic"),
        tuple(rows),
        "Energy at the given length. Load: arrivals over measured capacity.",
    )
