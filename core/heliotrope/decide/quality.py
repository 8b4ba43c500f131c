"""Which models may answer a request: predicted quality against a floor relative to the best candidate.

Context-is-not-free §3.3, equation 3: M(β) = {m : Q(m) ≥ β · max Q}, over the members of a group that some endpoint
serves. What is left goes to the decision as candidates, which chooses model and endpoint together.

Reasoning effort is chosen behind that, model by model: the level with the fewest output tokens whose quality keeps the
same floor. Fewer tokens draw less at any endpoint, so nothing is lost by not comparing levels across endpoints.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np

from heliotrope.decide.candidates import BoolColumn, FloatColumn
from heliotrope.predict.reasoning import Effort, Reasoning
from heliotrope.unknown import finite_or_none

NAN = float("nan")
DEFAULT_FLOOR = 0.85


class Predictor(StrEnum):
    """Who predicts quality."""

    TABLE = "table"
    LEARNED = "learned"
    HTTP = "http"


class Lower(StrEnum):
    """Whose reasoning effort may be lowered."""

    NEVER = "never"
    UNSAID = "unsaid"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class Level:
    """A reasoning effort; shares of output tokens and quality without a stated effort."""

    effort: Effort
    output_share: float
    quality_share: float


@dataclass(frozen=True, slots=True)
class Member:
    """A model that may answer."""

    model: str
    served_by: str
    """The model of the endpoints that serve it."""
    quality: float = NAN
    by_task: Mapping[str, float] = field(default_factory=dict)
    levels: tuple[Level, ...] = ()

    def stated_quality(self, task: str) -> float:
        """The table's; NaN: unknown."""
        return self.by_task.get(task, self.quality)

    def level(self, effort: Effort | None) -> Level | None:
        """What is known of an effort."""
        return next((each for each in self.levels if each.effort is effort), None)


@dataclass(frozen=True, slots=True)
class Group:
    """Models that may answer requests for one name."""

    name: str
    members: tuple[Member, ...]

    @property
    def default(self) -> Member:
        """Answers where nothing else is known to be good enough."""
        return next((each for each in self.members if each.model == self.name), self.members[0])


@dataclass(frozen=True, slots=True)
class ModelRules:
    """What a policy says of models."""

    groups: Mapping[str, Group]
    floor: float = DEFAULT_FLOOR
    """β, in [0, 1]."""
    predictor: Predictor = Predictor.TABLE
    classes: frozenset[str] = frozenset()
    """Empty: requests of every class, and of none."""
    lower: Lower = Lower.NEVER
    lowest: Effort = Effort.LOW
    withheld: str | None = None
    """Why they are computed and reported, and the group's default answers all the same; None: they act."""

    def group_for(self, model: str, service_class: str | None) -> Group | None:
        """The group that a request may be answered by; None: only by what it asks for."""
        if self.classes and service_class not in self.classes:
            return None
        return self.groups.get(model)


@dataclass(frozen=True, slots=True)
class Prediction:
    """Qualities by model, with their origin."""

    quality: Mapping[str, float]
    """NaN, or left out: unknown."""
    source: Predictor
    task: str
    fallback: str | None = None
    """Why the table took the policy's predictor's place; None: it did not."""
    router_joules: float = 0.0
    """What the picker's own processor spent on it."""


@dataclass(frozen=True, slots=True)
class JudgedModel:
    """One member with its verdict."""

    member: Member
    quality: float
    available: bool
    """Whether an endpoint serves it."""
    allowed: bool
    effort: Effort | None
    """To ask for instead; None: as the request has it."""
    output_share: float
    """Expected output tokens in proportion to those at the effort that was asked for."""


@dataclass(frozen=True, slots=True)
class ModelVerdict:
    """Which models may answer one request, and why the others may not."""

    group: Group
    floor: float
    least_quality: float
    """β times the best available; NaN where no quality is known."""
    prediction: Prediction
    models: tuple[JudgedModel, ...]
    withheld: str | None = None
    """Why the group's default answers whatever is allowed here; None: the verdict holds."""

    def serving(self) -> frozenset[str]:
        """Models of the endpoints that may be used."""
        return frozenset(each.member.served_by for each in self._answering())

    def at(self, served: str | None) -> JudgedModel | None:
        """Which member answers at an endpoint that serves this model: the best allowed one, of equals the first."""
        there = [each for each in self._answering() if each.member.served_by == served]
        return max(there, key=lambda each: -1.0 if math.isnan(each.quality) else each.quality, default=None)

    def choice(self, served: str | None) -> "ModelChoice | None":
        """What is asked of an endpoint that serves this model."""
        judged = self.at(served)
        if judged is None:
            return None
        default = self.group.default.model
        why = "the default of the group"
        if judged.member.model != default:
            why = f"quality {judged.quality:.3g} of at least {self.least_quality:.3g}"
        elif not math.isnan(self.least_quality):
            why = f"quality {judged.quality:.3g}, at least {self.least_quality:.3g} asked"
        return ModelChoice(judged, judged.member.model != default, why)

    def _answering(self) -> list[JudgedModel]:
        if self.withheld is None:
            return [each for each in self.models if each.allowed]
        default = self.group.default
        return [replace(e, effort=None, output_share=1.0) for e in self.models if e.member == default and e.available]

    def document(self) -> dict[str, Any]:
        """As plain data; unknown is None."""
        return {
            "group": self.group.name,
            "withheld_because": self.withheld,
            "default": self.group.default.model,
            "quality_floor": self.floor,
            "least_quality": finite_or_none(self.least_quality),
            "predictor": self.prediction.source.value,
            "task": self.prediction.task,
            "fallback": self.prediction.fallback,
            "router_joules": self.prediction.router_joules,
            "models": [
                {
                    "model": each.member.model,
                    "served_by": each.member.served_by,
                    "quality": finite_or_none(each.quality),
                    "available": each.available,
                    "allowed": each.allowed,
                    "effort": None if each.effort is None else each.effort.name.lower(),
                }
                for each in self.models
            ],
        }


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The model that answers."""

    judged: JudgedModel
    downgraded: bool
    """Whether it is another than the group's default."""
    why: str

    @property
    def model(self) -> str:
        """Its name as the engine is asked for it."""
        return self.judged.member.model


def meets_floor(quality: FloatColumn, available: BoolColumn, floor: float) -> tuple[BoolColumn, float]:
    """Equation 3.

    Args:
        quality: per model, in [0, 1]; NaN: unknown, which fails the floor.
        available: per model.
        floor: β in [0, 1].

    Returns:
        Per model whether it passes, and the least quality; nothing passes, and NaN, where no quality is known.
    """
    known = available & np.isfinite(quality)
    if not known.any():
        return np.zeros(len(quality), dtype=np.bool_), NAN
    least = floor * float(quality[known].max())
    return known & (np.where(known, quality, -1.0) >= least), least


def judge(
    group: Group,
    rules: ModelRules,
    prediction: Prediction,
    serving: frozenset[str],
    reasoning: Reasoning,
    *,
    effort_is_free: bool = True,
) -> ModelVerdict | None:
    """The models that may answer.

    Where no quality is known it is the group's default alone, or, if nothing serves that, the first that is served.

    Args:
        group: of the request.
        rules: the policy's.
        prediction: of the request.
        serving: models that endpoints serve.
        reasoning: what the request says.
        effort_is_free: whether the request's effort could be changed at all.

    Returns:
        None where no member is served; where the rules are withheld, where the default is not.
    """
    members = group.members
    available = np.array([each.served_by in serving for each in members], dtype=np.bool_)
    if not available.any() or (rules.withheld is not None and group.default.served_by not in serving):
        return None
    quality = np.array([_at_effort(each, prediction.quality.get(each.model, NAN), reasoning) for each in members])
    allowed, least = meets_floor(quality, available, rules.floor)
    if not allowed.any():
        allowed[_fallback(group, available.tolist())] = True
    judged = []
    for i, member in enumerate(members):
        level = None
        if allowed[i] and effort_is_free:
            level = _lowest(member, float(quality[i]), least, rules, reasoning)
        share = 1.0 if level is None else level.output_share / _shares(member, reasoning)[0]
        judged.append(
            JudgedModel(
                member,
                float(quality[i]),
                available=bool(available[i]),
                allowed=bool(allowed[i]),
                effort=None if level is None else level.effort,
                output_share=share,
            )
        )
    return ModelVerdict(group, rules.floor, least, prediction, tuple(judged), rules.withheld)


def _fallback(group: Group, available: Sequence[bool]) -> int:
    default = group.members.index(group.default)
    return default if available[default] else available.index(True)


def _shares(member: Member, reasoning: Reasoning) -> tuple[float, float]:
    """Output tokens and quality at the effort that the request states; an unlisted one changes nothing."""
    level = member.level(reasoning.effort)
    return (1.0, 1.0) if level is None else (level.output_share, level.quality_share)


def _at_effort(member: Member, quality: float, reasoning: Reasoning) -> float:
    return quality * _shares(member, reasoning)[1]


def _lowest(member: Member, quality: float, least: float, rules: ModelRules, reasoning: Reasoning) -> Level | None:
    """The level to ask for in place of the request's; None leaves it."""
    asked = reasoning.effort
    if rules.lower is Lower.NEVER or reasoning.budget_tokens is not None:
        return None
    if asked is not None and (rules.lower is not Lower.ALWAYS or member.level(asked) is None):
        return None
    tokens, share = _shares(member, reasoning)
    if math.isnan(quality) or share <= 0.0:
        return None
    fitting = [
        level
        for level in member.levels
        if level.effort >= rules.lowest
        and (asked is None or level.effort < asked)
        and level.output_share < tokens
        and quality * level.quality_share / share >= least
    ]
    return min(fitting, key=lambda level: level.output_share, default=None)
