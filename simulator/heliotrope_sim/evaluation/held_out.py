"""Errors of models on runs that they have not seen, beside those of the analytic model.

Scored are medians: of a model's estimates they are nearest, in relative terms, to what single requests take.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heliotrope.predict.features import with_output_tokens
from heliotrope.predict.models import LearnedModels
from heliotrope.predict.targets import ANALYTIC_COLUMN, REQUESTS, Target
from heliotrope_sim.evaluation.regimes import Regime, regime
from heliotrope_sim.evaluation.rows import Bools, Requests, Steps
from heliotrope_sim.evaluation.scores import Floats, Score, coverage, mape, mean_score

PHASE_ERROR = 0.25
"""Of the step's length: mean distance of a uniform instant from its middle."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Predictions of every request of a set, beside the truth. Energy at the decision, and with the length given."""

    requests: Requests
    ttft: Floats
    ttft_q90: Floats
    tpot: Floats
    tpot_q90: Floats
    joules: Floats
    joules_q90: Floats
    joules_at_decision: Floats

    @classmethod
    def of(cls, models: LearnedModels, requests: Requests) -> "Answers":
        """What these models say: medians of times, as most requests take them; means of joules, as they add up."""
        decided = models.predict(requests.rows)
        given = models.predict(with_output_tokens(requests.rows, requests.output_tokens))
        return cls(
            requests,
            ttft=decided.typical_of(Target.TTFT),
            ttft_q90=decided.q90_of(Target.TTFT),
            tpot=decided.typical_of(Target.TPOT),
            tpot_q90=decided.q90_of(Target.TPOT),
            joules=given.typical_of(Target.REQUEST_ENERGY),
            joules_q90=given.q90_of(Target.REQUEST_ENERGY),
            joules_at_decision=decided.typical_of(Target.REQUEST_ENERGY),
        )

    @classmethod
    def analytic(cls, requests: Requests) -> "Answers":
        """What the (miscalibrated) analytic model says; NaN where the endpoint has no profile and for quantiles."""
        given = with_output_tokens(requests.rows, requests.output_tokens)
        unknown = np.full(len(requests), np.nan)
        ttft, tpot, joules = (requests.rows[:, ANALYTIC_COLUMN[target]] for target in REQUESTS.targets)
        given_joules = given[:, ANALYTIC_COLUMN[Target.REQUEST_ENERGY]]
        return cls(requests, ttft, unknown, tpot, unknown, given_joules, unknown, joules)


def masks(requests: Requests) -> Mapping[Regime, Bools]:
    """The requests of each regime."""
    of_run = np.array([regime(u) for u in requests.utilisation])
    return {each: of_run == each for each in Regime}


def request_scores(answers: Answers, seed: int) -> dict[str, Score]:
    """All errors of requests and the coverage of their quantiles, by key."""
    r = answers.requests
    by_regime = masks(r)
    scores: dict[str, Score] = {}
    for each, suffix in ((Regime.BELOW, ""), (Regime.AROUND, "_around"), (Regime.ABOVE, "_above")):
        chosen = by_regime[each]
        for name, true, predicted in (
            ("ttft_mape", r.ttft_seconds, answers.ttft),
            ("tpot_mape", r.tpot_seconds, answers.tpot),
            ("request_energy_mape", r.joules, answers.joules),
            ("request_energy_at_decision_mape", r.joules, answers.joules_at_decision),
        ):
            scores[name + suffix] = mape(true[chosen], predicted[chosen], r.run[chosen], seed)
    below = by_regime[Regime.BELOW]
    for name, chosen in (("ttft_mape_alone", below & r.alone), ("ttft_mape_shared", below & ~r.alone)):
        scores[name] = mape(r.ttft_seconds[chosen], answers.ttft[chosen], r.run[chosen], seed)
    for name, true, quantile in (
        ("ttft_coverage_90", r.ttft_seconds, answers.ttft_q90),
        ("tpot_coverage_90", r.tpot_seconds, answers.tpot_q90),
        ("request_energy_coverage_90", r.joules, answers.joules_q90),
    ):
        scores[name] = coverage(true, quantile, r.run, seed)
    scores["coverage_90"] = coverage(
        np.concatenate([r.ttft_seconds, r.tpot_seconds, r.joules]),
        np.concatenate([answers.ttft_q90, answers.tpot_q90, answers.joules_q90]),
        np.tile(r.run, 3),
        seed,
    )
    return scores


def phase_floor(requests: Requests, chosen: Bools, seed: int) -> Score:
    """Error of TTFT that remains for whoever knows everything but when the running step began.

    A request meets a step at a uniform instant, so that even the best guess, half of the step, errs by a quarter of it
    on average. No feature of the picker tells more.
    """
    error = requests.met_step_seconds[chosen] * PHASE_ERROR / requests.ttft_seconds[chosen]
    return mean_score(error, requests.run[chosen], seed)


def step_scores(models: LearnedModels, steps: Steps, seed: int) -> tuple[Score, Score]:
    """Error of the energy of steps: learned, and analytic where there is a profile."""
    learned = models.predict_steps(steps.rows).typical_of(Target.STEP_ENERGY)
    analytic: NDArray[np.float64] = steps.rows[:, ANALYTIC_COLUMN[Target.STEP_ENERGY]]
    return mape(steps.joules, learned, steps.run, seed), mape(steps.joules, analytic, steps.run, seed)
