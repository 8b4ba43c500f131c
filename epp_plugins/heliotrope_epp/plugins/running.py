"""One profile's run: filters → scorers → picker."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from heliotrope.carbon.arms import Arm
from heliotrope.decide.candidates import FloatColumn
from heliotrope.decide.holdout import Assignment
from heliotrope.decide.policy import DecisionPolicy
from heliotrope_epp.plugins.interface import LlmRequest, Options, Pick
from heliotrope_epp.plugins.memory import PickerMemory
from heliotrope_epp.plugins.pickers.carbon import Helpers
from heliotrope_epp.plugins.profile import Profile, WeightedScorer
from heliotrope_epp.plugins.scheduled import ProfileResult, ProfileTimes


@dataclass(frozen=True, slots=True)
class Steering:
    """What an attached policy brings to one request."""

    policy: DecisionPolicy
    """As it holds for the request."""
    assignment: Assignment
    memory: PickerMemory
    now_s: float

    @property
    def followed(self) -> bool:
        """Whether the policy's choice is what is done; not under `Advise`, nor for what is held out."""
        return self.policy.enforce and self.assignment.arm is not Arm.HOLDOUT


@dataclass(frozen=True, slots=True)
class Asked:
    """A request at one moment, with the endpoints that may serve it."""

    request: LlmRequest
    options: Options
    steering: Steering | None
    """None: no policy is attached."""
    now_unix_s: float
    timer: Callable[[], float]


ALONE = Helpers()


def run_profile(profile: Profile, asked: Asked, helpers: Helpers = ALONE) -> ProfileResult:
    """Choose from what the profile's filters leave."""
    timer, options = asked.timer, asked.options
    started_s = timer()
    kept, reason = filtered(profile, asked.request, options)
    filtered_s = timer()
    if not kept:
        times = ProfileTimes(started_s, filtered_s)
        return ProfileResult(profile, Pick((), reason), kept, (), np.zeros(0), len(options), times)
    timed = [(_column(weighted, asked.request, kept), timer()) for weighted in profile.scorers]
    columns = tuple(column for column, _ in timed)
    scores = _weighted_sums(profile.scorers, columns) if columns else np.zeros(len(kept))
    pick = _picked(profile, asked, kept, scores, helpers)
    times = ProfileTimes(started_s, filtered_s, tuple(scored_s for _, scored_s in timed), timer())
    return ProfileResult(profile, pick, kept, columns, scores, len(options), times)


def filtered(profile: Profile, request: LlmRequest, options: Options) -> tuple[Options, str]:
    """What the filters leave; if that is nothing, why."""
    if not options:
        return options, "there are no endpoints"
    kept = options
    for named in profile.filters:
        kept = Options.of(named.filter.filter(request, kept))
        if not kept:
            return kept, f"filter {named.name} leaves none of the endpoints ({len(options)})"
    return kept, ""


def _column(weighted: WeightedScorer, request: LlmRequest, options: Options) -> FloatColumn:
    column = weighted.scorer.score(request, options)
    if len(column) != len(options):
        raise ValueError(f"scorer {weighted.name} gave {len(column)} values for {len(options)} endpoints")
    return column


def _weighted_sums(scorers: Sequence[WeightedScorer], columns: Sequence[FloatColumn]) -> FloatColumn:
    """Σ weight · value clamped to [0, 1], where NaN is 0. Equal endpoints get equal sums to the last bit."""
    sums = np.zeros(len(columns[0]))
    for weighted, column in zip(scorers, columns, strict=True):
        clamped = np.fmax(column, 0.0)
        np.minimum(clamped, 1.0, out=clamped)
        clamped *= weighted.weight
        sums += clamped
    return sums


def _picked(profile: Profile, asked: Asked, options: Options, scores: FloatColumn, helpers: Helpers) -> Pick:
    """An enforced policy decides; under `Advise`, and without a policy, the configured picker does."""
    carbon, steering = profile.carbon_picker, asked.steering
    request, now_unix_s = asked.request, asked.now_unix_s
    if steering is None:
        return profile.picker.pick(request, options, scores, now_unix_s)
    policy, assignment = steering.policy, steering.assignment
    standing = steering.memory.standing(options, policy, steering.now_s)
    others = (assignment, policy, standing, helpers.prefill, helpers.encode)
    if policy.enforce or profile.picker is carbon:
        return carbon.pick(request, options, scores, now_unix_s, *others)
    advice = carbon.evaluate(request, options, scores, now_unix_s, *others)
    return replace(profile.picker.pick(request, options, scores, now_unix_s), decision=advice)
