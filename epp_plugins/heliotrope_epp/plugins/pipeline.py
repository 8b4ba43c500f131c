"""The one path from a request to an endpoint: producers → filters → scorers → picker."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from heliotrope.carbon.arms import Arm
from heliotrope.decide.compared import Planned
from heliotrope.decide.holdout import Assignment, Holdout
from heliotrope.decide.policy import DecisionPolicy, Override
from heliotrope.decide.quality import ModelVerdict, Prediction, judge
from heliotrope.decide.resolve import Resolver
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.plugins.context import PluginContext
from heliotrope_epp.plugins.interface import (
    Beliefs,
    BelievingProducer,
    DisaggregatingHandler,
    EncodingHandler,
    LlmRequest,
    Options,
    Producer,
)
from heliotrope_epp.plugins.memory import PickerMemory
from heliotrope_epp.plugins.options import joined
from heliotrope_epp.plugins.pickers.carbon import Helpers
from heliotrope_epp.plugins.pickers.unfollowed import compare
from heliotrope_epp.plugins.profile import Scheduling
from heliotrope_epp.plugins.running import Asked, Steering, run_profile
from heliotrope_epp.plugins.scheduled import ProfileResult, ScheduleResult, served_model, untimed
from heliotrope_epp.plugins.stages import (
    chosen_encoders,
    chosen_prefiller,
    encode_elsewhere,
    offered,
    prefill_elsewhere,
)


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
        assignment = self.holdout.assign(policy, request)
        models = None
        if policy is not None and prediction is not None:
            models = _judged(policy, request, states, prediction, assignment, effort_is_free)
            if models is not None and policy.enforce:
                serving = models.serving()
                states = [state for state in states if served_model(state) in serving]
        options = self._options(request, states, now_s, policy)
        steering = None if policy is None else Steering(policy, assignment, self.memory, now_s)
        asked = Asked(request, options, steering, now_unix_s, timer)
        results, helpers = self._run(asked)
        handler = self._scheduling.handler
        primary = handler.primary({name: result.pick for name, result in results.items()})
        enforced = policy is not None and policy.enforce
        comparison = None
        if steering is not None and not steering.followed:
            pick, picker = results[primary].pick, self._profiles[primary].carbon_picker
            comparison = compare(picker, request, pick, helpers)
        return ScheduleResult(
            primary, results, enforced=enforced, assignment=assignment, models=models, comparison=comparison
        )

    def _run(self, asked: Asked) -> tuple[dict[str, ProfileResult], Helpers]:
        """The handler's profiles, with the phases that go elsewhere, and what a policy could choose from for these."""
        handler, request = self._scheduling.handler, asked.request
        followed = asked.steering is not None and asked.steering.followed
        prefill = None if self._prefill is None else offered(self._prefill, asked)
        encode = self._encode if request.media else None
        encoders = None if encode is None else offered(encode, asked)
        helpers = Helpers(
            None if prefill is None else prefill.helpers,
            None if encoders is None else encoders.helpers,
        )
        names = handler.profiles(request, self._names)
        results = {name: run_profile(self._profiles[name], asked, helpers) for name in names}
        if followed and prefill is not None:
            prefill.show(results, chosen_prefiller(results))
        elif self._prefill is not None and isinstance(handler, DisaggregatingHandler):
            prefill_elsewhere(results, handler, self._prefill, asked)
        if followed and encoders is not None:
            encoders.show(results, chosen_encoders(results))
        elif encode is not None and isinstance(handler, EncodingHandler):
            encode_elsewhere(results, handler, encode, asked)
        return results, helpers

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

    def moving(self, plan: Planned, source: EndpointState, reader: EndpointState, now_s: float) -> None:
        """A routed request's plan moves KV blocks from one endpoint to another."""
        self.memory.transfers.caused(plan, source, reader, now_s)

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
