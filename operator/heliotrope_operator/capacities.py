"""What replicas carry within their promise: computed once for each engine, promise and kind of request."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import exp, log

from heliotrope.api.v1alpha1 import CarbonPolicy, WorkloadVariant
from heliotrope.api.v1alpha1.common import Enforcement, Role
from heliotrope.decide.from_resources import engine_model
from heliotrope.engine.model import EngineModel
from heliotrope.errors import InvalidInputError
from heliotrope.scale.facts import Mix, ReplicaCapacity
from heliotrope.scale.throughput import Correction, Promise, from_measurements, throughput

REMEMBERED = 2_048
MIX_STEP = 1.1
"""Requests whose mean lengths differ by less than this factor count as alike, so that a plan rarely computes anew."""
NO_CORRECTION = Correction()


@dataclass(frozen=True, slots=True)
class _Question:
    engine: EngineModel | None
    measured: tuple[object, ...]
    mix: Mix
    promise: Promise
    role: Role
    clock_mhz: int | None
    correction: Correction


class Capacities:
    """Remembers answers; safe to use from one thread at a time."""

    def __init__(self, profiles: Mapping[str, EngineModel]) -> None:
        """`profiles` are the shipped engine profiles by name."""
        self._profiles = profiles
        self._known: OrderedDict[_Question, ReplicaCapacity | None] = OrderedDict()

    def of(
        self, variant: WorkloadVariant, policy: CarbonPolicy, mix: Mix, correction: Correction = NO_CORRECTION
    ) -> ReplicaCapacity | None:
        """What one replica of a variant carries under a policy; None: unknown.

        Args:
            variant: with its engine model or its measured energy profile, and the clock that was chosen for it.
            policy: whose promise holds.
            mix: of the requests.
            correction: of its engine model.
        """
        slo = policy.spec.slo
        question = _Question(
            engine=self.engine(variant),
            measured=variant.spec.energy_profile,
            mix=_rounded(mix),
            promise=Promise(slo.ttft.total_seconds(), slo.tpot.total_seconds()),
            role=variant.spec.role,
            clock_mhz=_clock_mhz(variant),
            correction=correction,
        )
        if question in self._known:
            self._known.move_to_end(question)
            return self._known[question]
        answer = self._known[question] = _answer(question, variant)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return answer

    def engine(self, variant: WorkloadVariant) -> EngineModel | None:
        """Its step model; None where it names none, or one that is not there."""
        try:
            return engine_model(variant, self._profiles)
        except InvalidInputError:
            return None  # the picker and the variant's status say so


def _answer(question: _Question, variant: WorkloadVariant) -> ReplicaCapacity | None:
    if question.engine is not None:
        clock = question.clock_mhz
        engine = question.engine if clock is None else question.engine.at_clock(clock)
        return throughput(engine, question.mix, question.promise, question.role, question.correction).capacity
    if not variant.spec.energy_profile:
        return None
    found = from_measurements(variant.spec.energy_profile, question.mix, question.promise, None, question.clock_mhz)
    return None if found is None else found.capacity


def _clock_mhz(variant: WorkloadVariant) -> int | None:
    """The clock that was chosen for the phases that it serves, unless it is mere advice; None: the device's own."""
    chosen = () if variant.status is None else variant.status.chosen_power
    acting = (each for each in chosen if each.enforcement is not Enforcement.ADVISE)
    return next((each.sm_clock_mhz for each in acting if each.role is variant.spec.role), None)


def _rounded(mix: Mix) -> Mix:
    return replace(mix, prompt_tokens=_step(mix.prompt_tokens), output_tokens=_step(mix.output_tokens))


def _step(tokens: float) -> float:
    """The nearest power of `MIX_STEP`."""
    return 1.0 if tokens <= 1.0 else exp(round(log(tokens) / log(MIX_STEP)) * log(MIX_STEP))
