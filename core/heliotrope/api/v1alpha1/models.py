"""What a CarbonPolicy says of models: which may answer in place of another, and how good the answer must stay."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from heliotrope.api.lists import ListMap, ListSet
from heliotrope.api.struct import Struct, rule
from heliotrope.api.v1alpha1.common import Fraction
from heliotrope.api.v1alpha1.requests import ClassName

ModelName = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=r"^[!-~]+$")]
TaskName = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]


class QualityPredictor(StrEnum):
    """Who predicts how good a model's answer to a request will be."""

    TABLE = "Table"
    LEARNED = "Learned"
    HTTP = "Http"


class ModelKind(StrEnum):
    """How a member differs from its base model."""

    FULL = "Full"
    QUANTISED = "Quantised"
    LORA = "Lora"


class ReasoningEffort(StrEnum):
    """How long a model may reason, in OpenAI's words."""

    NONE = "none"
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"
    MAX = "max"


class LowerEffort(StrEnum):
    """Whose reasoning effort may be lowered."""

    NEVER = "Never"
    UNSAID = "Unsaid"
    ALWAYS = "Always"


class TaskQuality(Struct):
    """The quality of a model for one class of tasks."""

    task: TaskName
    """The class: of the header `x-heliotrope-task`, or `code`, `numbers`, `long` or `chat` as the picker counts it."""
    quality: Fraction
    """Quality from 0 to 1, a decimal string."""


class EffortLevel(Struct):
    """What a reasoning effort costs and brings with one model."""

    effort: ReasoningEffort
    """The effort."""
    output_tokens_percent: Annotated[int, Field(ge=1, le=10_000)]
    """Output tokens in percent of those without a stated effort."""
    quality_percent: Annotated[int, Field(ge=0, le=100)]
    """Quality in percent of that without a stated effort."""


class ModelMember(Struct):
    """A model that may answer."""

    model: ModelName
    """Name that the engine is asked for: a served model or a LoRA adapter."""
    served_by: ModelName | None = None
    """`spec.model` of the WorkloadVariants whose endpoints serve it; absent: the same name. An adapter states its base
    model."""
    kind: ModelKind = ModelKind.FULL
    """How it differs from its base model, for people and metrics."""
    quality: Fraction | None = None
    """Quality for tasks that `qualityByTask` does not list, a decimal string; absent: unknown, which fails the
    floor."""
    quality_by_task: Annotated[tuple[TaskQuality, ...], Field(max_length=32), ListMap("task")] = ()
    """Quality by class of task, for the predictor `Table` and where another one gives nothing."""
    efforts: Annotated[tuple[EffortLevel, ...], Field(max_length=7), ListMap("effort")] = ()
    """Reasoning efforts that it offers; empty: its effort is left alone."""

    @rule(
        "self.kind != 'Lora' || has(self.servedBy)",
        "a Lora member must name its base model in servedBy",
        field="servedBy",
    )
    def _base_known(self) -> bool:
        return self.kind is not ModelKind.LORA or self.served_by is not None


class ModelGroup(Struct):
    """Models that may answer requests for one name."""

    name: ModelName
    """Name that clients ask for. The member of this name, else the first, answers where nothing else is known to be
    good enough."""
    members: Annotated[tuple[ModelMember, ...], Field(min_length=1, max_length=16), ListMap("model")]
    """The models."""


class Reasoning(Struct):
    """Whether the picker may lower a request's reasoning effort."""

    lower: LowerEffort = LowerEffort.NEVER
    """`Unsaid`: of requests that say nothing of reasoning. `Always`: also of those that state `reasoning_effort`. A
    budget in tokens or a setting of the chat template is never touched."""
    lowest: ReasoningEffort = ReasoningEffort.LOW
    """Lowest effort that may be set."""


class Models(Struct):
    """Lets a request be answered by another model than it asks for, within a floor of quality."""

    enabled: bool = False
    """Opts in. False leaves every request to the model that it asks for."""
    quality_floor: Fraction = 0.85
    """Least predicted quality in proportion to the best available member's (β of equation 3 of context-is-not-free), a
    decimal string."""
    predictor: QualityPredictor = QualityPredictor.TABLE
    """`Table`: the qualities below. `Learned`: the picker's `--quality-model`. `Http`: the picker's `--quality-url`.
    Where the latter two give nothing, the table holds."""
    classes: Annotated[tuple[ClassName, ...], Field(max_length=8), ListSet()] = ()
    """Classes of requests that may be answered by another model; empty: all requests."""
    reasoning: Reasoning = Reasoning()
    """Reasoning efforts."""
    groups: Annotated[tuple[ModelGroup, ...], Field(min_length=1, max_length=16), ListMap("name")]
    """Groups of models."""
