"""Which requests another model may answer, and who predicts its quality."""

from collections.abc import Mapping
from dataclasses import replace

from heliotrope.decide.quality import Group, Prediction, Predictor
from heliotrope.decide.resolve import class_of
from heliotrope_epp.plugins.context import CarbonContext
from heliotrope_epp.plugins.interface import LlmRequest
from heliotrope_epp.plugins.models.predictor import CpuMeter, QualityPredictor, TablePredictor, Then, task_of

TASK_HEADER = "x-heliotrope-task"


class ModelRouter:
    """Finds the group of a request and has its models' quality predicted. Lives on the loop's thread."""

    def __init__(
        self,
        carbon: CarbonContext,
        predictors: Mapping[Predictor, QualityPredictor],
        meter: CpuMeter | None = None,
    ) -> None:
        self._carbon = carbon
        self._predictors = {Predictor.TABLE: TablePredictor(), **predictors}
        self._meter = meter or CpuMeter()

    def group_for(self, request: LlmRequest) -> Group | None:
        """The models that may answer; None: the policy opts nothing in for this request."""
        policy = self._carbon.policy()
        if policy is None or policy.models is None:
            return None
        service = class_of(policy.classes, request.asked)
        return policy.models.group_for(request.model, None if service is None else service.name)

    def predict(self, request: LlmRequest, group: Group, task_header: str | None, then: Then) -> None:
        """Call `then` once with the prediction, at once or later; it says what the picker's processor spent."""
        policy = self._carbon.policy()
        kind = Predictor.TABLE if policy is None or policy.models is None else policy.models.predictor
        predictor = self._predictors.get(kind) or TablePredictor(f"no predictor {kind.value} is set up")
        if kind is Predictor.HTTP and policy is not None and not policy.enforce:
            predictor = TablePredictor("Advise does not let requests wait")
        elif kind is Predictor.HTTP and policy is not None and policy.models is not None and policy.models.withheld:
            predictor = TablePredictor("requests do not wait for what is not granted")
        started_s = self._meter.clock()
        answered = False
        asked_joules = 0.0

        def charged(prediction: Prediction) -> None:
            nonlocal answered
            answered = True
            then(replace(prediction, router_joules=asked_joules or self._meter.joules_since(started_s)))

        predictor.predict(request, group, task_of(task_header, request), charged)
        if not answered:
            # The answer comes on another turn of the loop, where others' time would count as this request's.
            asked_joules = self._meter.joules_since(started_s)
