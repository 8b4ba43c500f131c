"""The part that makes wanted replicas so."""

from heliotrope_operator.actuation.controller import ActuationController
from heliotrope_operator.actuation.fields import Fields
from heliotrope_operator.actuation.held import HeldTargets
from heliotrope_operator.actuation.metrics import ActuationMetrics, WantedCollector
from heliotrope_operator.kinds.targets import ALL_ACTUATIONS
from heliotrope_operator.parts import Context, Part
from heliotrope_operator.resources import Kind
from heliotrope_operator.scales import Scales


def part(context: Context) -> Part:
    """Its controller, which also follows the kinds that variants scale."""
    registry, operator = context.metrics.registry, context.settings.namespace
    registry.register(WantedCollector(context.tables, context.cluster, lambda: context.writes.allowed))
    controller = ActuationController(
        context.cluster,
        Fields(context.writes, operator=operator, unix_clock=context.unix_clock),
        Scales(context.kube),
        context.tables,
        HeldTargets(),
        context.recorder,
        ActuationMetrics(registry),
        operator=operator,
        enqueue=context.enqueue,
    )
    return Part(controllers={Kind.ACTUATION: controller}, seeds=(ALL_ACTUATIONS,), on_target=controller.on_target)
