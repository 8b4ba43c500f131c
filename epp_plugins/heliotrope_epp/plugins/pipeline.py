"""The one path from a request to an endpoint: producers → filters → scorers → picker."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from heliotrope.carbon.arms import Arm
from heliotrope.decide.candidates import FloatColumn
from heliotrope.decide.decision import Decision
from heliotrope.decide.explanation import MAX_CANDIDATES
from heliotrope.decide.holdout import UNASSIGNED, Assignment, Holdout
from heliotrope.decide.policy import DecisionPolicy, Override, Provenance
from heliotrope.decide.quality import ModelChoice, ModelVerdict, Prediction, judge
from heliotrope.decide.resolve import Resolver
from heliotrope.unknown import finite_or_none
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.plugins.context import PluginContext
from heliotrope_epp.plugins.interface import (
    Beliefs,
    BelievingProducer,
    DisaggregatingHandler,
    EncodingHandler,
    LlmRequest,
    Option,
    Options,
    Pick,
    Producer,
)
from heliotrope_epp.plugins.memory import PickerMemory
from heliotrope_epp.plugins.options import joined
from heliotrope_epp.plugins.pickers.carbon import Prefillers, request_profile
from heliotrope_epp.plugins.profile import Profile, Scheduling, WeightedScorer

NAN = float("nan")


def untimed() -> float:
    """The timer of a run whose instants nobody wants."""
    return NAN


@dataclass(frozen=True, slots=True)
class ProfileTimes:
    """Instants of one profile's run, as the run's timer gave them; NaN where it was untimed or not reached."""

    started_s: float
    filtered_s: float
    scored_s: tuple[float, ...] = ()
    """Per scorer, its end."""
    picked_s: float = NAN


@dataclass(frozen=True, slots=True)
class ProfileResult:
    """What one profile chose, with the numbers behind it."""

    profile: Profile
    pick: Pick
    options: Options
    """What the filters left, in the order of the columns."""
    columns: tuple[FloatColumn, ...]
    """Per scorer, one value per option as the scorer gave it."""
    scores: FloatColumn
    """The weighted sums."""
    considered: int
    """Endpoints that the filters were given."""
    times: ProfileTimes

    def explanation(self) -> dict[str, Any]:
        """All of it as plain data for logs and `/debug`; of very many candidates those that came closest."""
        scorers = self.profile.scorers
        shown = self._shown()
        return {
            "profile": self.profile.name,
            "weights": {weighted.name: weighted.weight for weighted in scorers},
            "picker": self.profile.picker_name,
            "endpoints": [option.key for option in self.pick.options],
            "reason": self.pick.reason,
            "candidates": [
                {
                    "endpoint": option.key,
                    "score": float(self.scores[i]),
                    "scores": {
                        w.name: finite_or_none(column[i]) for w, column in zip(scorers, self.columns, strict=True)
                    },
                    "cached_tokens": float(option.cached_tokens),
                }
                for i, option in shown
            ],
            "candidates_omitted": len(self.options) - len(shown),
        }

    def _shown(self) -> Sequence[tuple[int, Option]]:
        rows = list(enumerate(self.options))
        if len(rows) <= MAX_CANDIDATES:
            return rows
        picked = {option.key for option in self.pick.options}
        nearest = sorted(rows, key=lambda row: (row[1].key not in picked, -self.scores[row[0]]))
        return sorted(nearest[:MAX_CANDIDATES], key=lambda row: row[0])


@dataclass(frozen=True, slots=True)
class ScheduleResult:
    """What every profile chose that ran, and which one counts."""

    primary: str
    profiles: Mapping[str, ProfileResult]
    enforced: bool
    """Whether a policy decided; False under `Advise`, where its decision is kept but not followed."""
    assignment: Assignment = UNASSIGNED
    """The arm of the request, the same in every profile."""
    models: ModelVerdict | None = None
    """Which models may answer; None: the policy opts nothing in for this request, or none of its group is served."""

    @property
    def pick(self) -> Pick:
        """The destination and its fallbacks."""
        return self.profiles[self.primary].pick

    @property
    def decision(self) -> Decision | None:
        """What the attached policy decided or would have decided; None without one."""
        return self.profiles[self.primary].pick.decision

    def plan_row(self, endpoint: str) -> int | None:
        """The row of the decision that holds for what is done when the request goes to `endpoint`.

        None without a decision, and where it has no such plan. An enforced decision's winner may be a plan that fetches
        blocks or prefills elsewhere; where the configured pickers decide, endpoints are used as they are.
        """
        decision, prefill = self.decision, self.pick.prefill
        if decision is None:
            return None
        return decision.row_of(endpoint) if prefill is None else decision.pair_row(endpoint, prefill.key)

    @property
    def model_choice(self) -> ModelChoice | None:
        """The model that the destination is asked for; None leaves the request's, as `Advise` does."""
        if self.models is None or not self.enforced or not self.pick.options:
            return None
        return self.models.choice(served_model(self.pick.options[0].state))

    @property
    def provenance(self) -> Provenance | None:
        """Where the settings of the request came from; None without a policy."""
        return None if self.decision is None else self.decision.policy.provenance

    def explanation(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {
            "primary": self.primary,
            "enforced": self.enforced,
            "arm": self.assignment.arm.value,
            "request_class": self.assignment.request_class,
            "profiles": [result.explanation() for result in self.profiles.values()],
        } | self._models()

    def _models(self) -> dict[str, Any]:
        if self.models is None:
            return {}
        choice = self.model_choice
        chosen = None if choice is None else choice.model
        why = None if choice is None else choice.why
        return {"models": {**self.models.document(), "applied": self.enforced, "chosen": chosen, "why": why}}


@dataclass(frozen=True, slots=True)
class _Steering:
    """What an attached policy brings to one request."""

    policy: DecisionPolicy
    """As it holds for the request."""
    assignment: Assignment
    memory: PickerMemory
    now_s: float


class Pipeline:
    """Runs a configuration's profiles. Lives on the loop's thread; a call never blocks."""

    def __init__(self, scheduling: Scheduling, context: PluginContext) -> None:
        self._scheduling = scheduling
        # Asking whether a producer believes takes microseconds.
        self._producers = tuple([(p, p if isinstance(p, BelievingProducer) else None) for p in scheduling.producers])
        self._profiles = {profile.name: profile for profile in scheduling.profiles}
        self._names = tuple(self._profiles)
        handler = scheduling.handler
        prefill = handler.prefill_profile if isinstance(handler, DisaggregatingHandler) else None
        self._prefill = None if prefill is None else self._profiles.get(prefill)
        encode = handler.encode_profile if isinstance(handler, EncodingHandler) else None
        self._encode = None if encode is None else self._profiles.get(encode)
        self.embeddings = context.embeddings
        """Which images endpoints are believed to remember."""
        self._carbon = context.carbon
        self._stale_after_s = context.metrics_stale_after_s
        self.holdout = Holdout(context.instance)
        """Which requests an enforced policy does not steer."""
        self._resolver = Resolver()
        self.memory = PickerMemory(context.instance)
        """How endpoints have fared lately and where requests went."""

    def run(
        self,
        request: LlmRequest,
        states: Sequence[EndpointState],
        now_s: float,
        now_unix_s: float,
        timer: Callable[[], float] = untimed,
        prediction: Prediction | None = None,
        *,
        effort_is_free: bool = False,
    ) -> ScheduleResult:
        """Choose an endpoint.

        Args:
            request: what is to be served.
            states: the endpoints that may serve it, in any order.
            now_s: monotonic time, for the age of metrics and of requests in flight.
            now_unix_s: the time that carbon signals are compared with.
            timer: gives the instants in the results' `times`.
            prediction: quality of the models that may answer; None: only the one that the request names does.
            effort_is_free: whether the request's reasoning effort could be changed.
        """
        policy = self._carbon.policy()
        if policy is not None:
            policy = self._resolver.policy_for(policy, request.asked, now_unix_s)
            request = _kept_promise(request, policy)
        assignment = self.holdout.assign(policy, request_profile(request))
        models = None
        if policy is not None and prediction is not None:
            models = _judged(policy, request, states, prediction, assignment, effort_is_free)
            if models is not None and policy.enforce:
                serving = models.serving()
                states = [state for state in states if served_model(state) in serving]
        options = self._options(request, states, now_s, policy)
        steering = None if policy is None else _Steering(policy, assignment, self.memory, now_s)
        handler = self._scheduling.handler
        prefillers = None if self._prefill is None else _prefillers(self._prefill, steering, request, options, timer)
        encode = self._encode if request.media else None
        encoders = None if encode is None else _prefillers(encode, steering, request, options, timer)
        results = {
            name: _run(self._profiles[name], steering, request, options, now_unix_s, timer, prefillers, encoders)
            for name in handler.profiles(request, self._names)
        }
        if prefillers is not None:
            _show_prefiller(results, prefillers)
        elif self._prefill is not None and isinstance(handler, DisaggregatingHandler):
            _split(results, handler, self._prefill, steering, request, options, now_unix_s, timer)
        if encoders is not None:
            _show_encoders(results, encoders)
        elif encode is not None and isinstance(handler, EncodingHandler) and handler.encodes_elsewhere(request):
            _encode_elsewhere(results, handler, encode, steering, request, options, now_unix_s, timer)
        primary = handler.primary({name: result.pick for name, result in results.items()})
        enforced = policy is not None and policy.enforce
        return ScheduleResult(primary, results, enforced=enforced, assignment=assignment, models=models)

    @property
    def producers(self) -> tuple[Producer, ...]:
        """The producers, for what they tell of themselves in metrics and debugging."""
        return self._scheduling.producers

    def routed(self, request: LlmRequest, state: EndpointState, *, fetched: bool = False) -> None:
        """The request was sent to this endpoint; `fetched`: by a plan that brings KV blocks there from elsewhere."""
        policy = self._carbon.policy()
        if policy is not None and policy.enforce:
            self.memory.sent(state)
        if self._learning(policy):
            for producer, believing in self._producers:
                if believing is None:
                    producer.routed(request, state)
                else:
                    believing.routed(request, state, fetched=fetched)

    def prefilled(self, request: LlmRequest, state: EndpointState) -> None:
        """The prompt of a routed request is prefilled here, and decoded where it was routed."""
        if self._learning(self._carbon.policy()):
            for producer, _ in self._producers:
                producer.routed(request, state)

    def encoded(self, request: LlmRequest, prefill: EndpointState, encoders: Sequence[EndpointState]) -> int:
        """The images of a routed request are encoded in turn at these, or at `prefill`, which has them all then.

        Returns:
            How many images were forgotten for them.
        """
        before = self.embeddings.evictions
        for turn, item in enumerate(request.media):
            helper = (encoders[turn % len(encoders)].endpoint.key,) if encoders else ()
            self.embeddings.remember(item.key, (*helper, prefill.endpoint.key))
        return self.embeddings.evictions - before

    def answered(self, request: LlmRequest, cached_tokens: int | None, prompt_tokens: int | None) -> None:
        """A routed request, the same object, ended; the engine's counts, None where it gave none."""
        for _, believing in self._producers:
            if believing is not None:
                believing.answered(request, cached_tokens, prompt_tokens)

    def ended(self, state: EndpointState, failed: float, now_s: float) -> None:
        """A request ended there; `failed` is how far that is the endpoint's failure, in [0, 1]."""
        self.memory.ended(state, failed, now_s)

    def forget(self, endpoint_key: str) -> None:
        """The endpoint is gone or lost its cache."""
        self.memory.forget(endpoint_key)
        self.embeddings.forget(endpoint_key)
        for producer in self._scheduling.producers:
            producer.forget(endpoint_key)

    def _learning(self, policy: DecisionPolicy | None) -> bool:
        return self._scheduling.producers_always or policy is not None

    def _options(
        self, request: LlmRequest, states: Sequence[EndpointState], now_s: float, policy: DecisionPolicy | None
    ) -> Options:
        beliefs: Sequence[Sequence[float] | Beliefs] = ()
        if self._learning(policy):
            beliefs = [
                producer.cached_tokens(request, states) if believing is None else believing.beliefs(request, states)
                for producer, believing in self._producers
            ]
        cached = joined(beliefs) if beliefs else [0.0] * len(states)
        return Options.at(states, cached, now_s, self._stale_after_s)


def served_model(state: EndpointState) -> str | None:
    """The model that an endpoint serves, as its WorkloadVariant says; None: nobody says."""
    hardware = state.traits.hardware
    return None if hardware is None else hardware.model


def _judged(
    policy: DecisionPolicy,
    request: LlmRequest,
    states: Sequence[EndpointState],
    prediction: Prediction,
    assignment: Assignment,
    effort_is_free: bool,
) -> ModelVerdict | None:
    """Which models may answer; a held-out request keeps the group's default, as without Heliotrope.

    So does one with images or the like: predictors know text, and a smaller model may not see.
    """
    rules = policy.models
    group = None if rules is None else rules.group_for(request.model, policy.provenance.service_class)
    if rules is None or group is None:
        return None
    held_out = assignment.arm is Arm.HOLDOUT
    if held_out:
        prediction = replace(prediction, quality={}, fallback="held out, so that savings are measured")
    elif request.media:
        prediction = replace(prediction, quality={}, fallback="holds more than text, of which quality is not predicted")
    serving = frozenset(name for state in states if (name := served_model(state)) is not None)
    free = effort_is_free and not held_out and not request.media
    return judge(group, rules, prediction, serving, request.reasoning, effort_is_free=free)


def _kept_promise(request: LlmRequest, policy: DecisionPolicy) -> LlmRequest:
    """The request without a promise of its own that the policy does not let it make."""
    if any(override is Override.SLO for override, _ in policy.provenance.refused):
        return replace(request, ttft_slo_seconds=None, tpot_slo_seconds=None)
    return request


def _run(
    profile: Profile,
    steering: _Steering | None,
    request: LlmRequest,
    options: Options,
    now_unix_s: float,
    timer: Callable[[], float],
    prefillers: "_Prefillers | None" = None,
    encoders: "_Prefillers | None" = None,
) -> ProfileResult:
    started_s = timer()
    kept, reason = _filtered(profile, request, options)
    filtered_s = timer()
    if not kept:
        times = ProfileTimes(started_s, filtered_s)
        return ProfileResult(profile, Pick((), reason), kept, (), np.zeros(0), len(options), times)
    timed = [(_column(weighted, request, kept), timer()) for weighted in profile.scorers]
    columns = tuple(column for column, _ in timed)
    scores = _weighted_sums(profile.scorers, columns) if columns else np.zeros(len(kept))
    pick = _picked(profile, steering, request, kept, scores, now_unix_s, prefillers, encoders)
    times = ProfileTimes(started_s, filtered_s, tuple(scored_s for _, scored_s in timed), timer())
    return ProfileResult(profile, pick, kept, columns, scores, len(options), times)


@dataclass(frozen=True, slots=True)
class _Prefillers:
    """What the profile for prefill, or that for encoders, leaves a policy to choose from."""

    profile: Profile
    offered: Prefillers
    considered: int
    times: ProfileTimes


def _prefillers(
    profile: Profile, steering: _Steering | None, request: LlmRequest, options: Options, timer: Callable[[], float]
) -> _Prefillers | None:
    """None where no policy decides where to prefill: without one, under `Advise`, and for what is held out."""
    if steering is None or not steering.policy.enforce or steering.assignment.arm is Arm.HOLDOUT:
        return None
    started_s = timer()
    kept, _ = _filtered(profile, request, options)
    filtered_s = timer()
    standing = steering.memory.standing(kept, steering.policy, steering.now_s)
    times = ProfileTimes(started_s, filtered_s, picked_s=filtered_s)
    return _Prefillers(profile, Prefillers(kept, standing), len(options), times)


def _show_prefiller(results: dict[str, ProfileResult], prefillers: _Prefillers) -> None:
    """Add the result of the profile for prefill, where the policy chose from what it leaves."""
    prefill = next((result.pick.prefill for result in results.values() if result.pick.prefill is not None), None)
    if prefill is not None:
        name, kept = prefillers.profile.name, prefillers.offered.options
        results[name] = ProfileResult(
            replace(prefillers.profile, scorers=()),  # no score is asked for
            Pick((prefill,)),
            kept,
            (),
            np.zeros(len(kept)),
            prefillers.considered,
            prefillers.times,
        )


def _show_encoders(results: dict[str, ProfileResult], encoders: _Prefillers) -> None:
    """Add the result of the profile for encoders, where the policy chose from what it leaves."""
    chosen = next((result.pick.encoders for result in results.values() if result.pick.encoders), ())
    if chosen:
        name, kept = encoders.profile.name, encoders.offered.options
        none = replace(encoders.profile, scorers=())  # no score is asked for
        results[name] = ProfileResult(
            none, Pick(chosen), kept, (), np.zeros(len(kept)), encoders.considered, encoders.times
        )


def _encode_elsewhere(
    results: dict[str, ProfileResult],
    handler: EncodingHandler,
    profile: Profile,
    steering: _Steering | None,
    request: LlmRequest,
    options: Options,
    now_unix_s: float,
    timer: Callable[[], float],
) -> None:
    """Choose encoders as llm-d does: by their profile. Where it leaves none, images are encoded with the prefill."""
    decode = results.get(handler.decode_profile)
    if decode is None or not decode.pick.options:
        return
    carbon = profile.picker is profile.carbon_picker
    there = _run(profile, steering if carbon else None, request, options, now_unix_s, timer)
    results[profile.name] = there
    if there.pick.options:
        pick = replace(decode.pick, encoders=there.pick.options)
        results[handler.decode_profile] = replace(decode, pick=pick)


def _split(
    results: dict[str, ProfileResult],
    handler: DisaggregatingHandler,
    profile: Profile,
    steering: _Steering | None,
    request: LlmRequest,
    options: Options,
    now_unix_s: float,
    timer: Callable[[], float],
) -> None:
    """Choose a prefiller as llm-d does, if the handler wants one: by the profile for prefill."""
    decode = results.get(handler.decode_profile)
    if decode is None or not decode.pick.options or not handler.prefills_elsewhere(request, decode.pick.options[0]):
        return
    carbon = profile.picker is profile.carbon_picker
    there = _run(profile, steering if carbon else None, request, options, now_unix_s, timer)
    results[profile.name] = there
    pick = replace(decode.pick, options=(), reason=f"prefill: {there.pick.reason}")
    if there.pick.options:
        prefill = there.pick.options[0]
        pick = replace(decode.pick, prefill=None if prefill.key == decode.pick.options[0].key else prefill)
    results[handler.decode_profile] = replace(decode, pick=pick)


def _filtered(profile: Profile, request: LlmRequest, options: Options) -> tuple[Options, str]:
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
    clamped = np.minimum(np.fmax(np.array(columns), 0.0), 1.0)
    weights = np.array([[weighted.weight] for weighted in scorers])
    sums: FloatColumn = np.add.reduce(weights * clamped, axis=0)
    return sums


def _picked(
    profile: Profile,
    steering: _Steering | None,
    request: LlmRequest,
    options: Options,
    scores: FloatColumn,
    now_unix_s: float,
    prefillers: "_Prefillers | None" = None,
    encoders: "_Prefillers | None" = None,
) -> Pick:
    """An enforced policy decides; under `Advise`, and without a policy, the configured picker does."""
    carbon = profile.carbon_picker
    if steering is None:
        return profile.picker.pick(request, options, scores, now_unix_s)
    policy, assignment = steering.policy, steering.assignment
    standing = steering.memory.standing(options, policy, steering.now_s)
    others = None if prefillers is None else prefillers.offered
    seers = None if encoders is None else encoders.offered
    if policy.enforce or profile.picker is carbon:
        return carbon.pick(request, options, scores, now_unix_s, assignment, policy, standing, others, seers)
    advice = carbon.evaluate(request, options, scores, now_unix_s, assignment, policy, standing, others, seers)
    return replace(profile.picker.pick(request, options, scores, now_unix_s), decision=advice)
