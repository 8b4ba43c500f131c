"""Puts power and demand response together."""

from heliotrope.engine import profiles
from heliotrope_operator.kinds.nodepowers import POWER
from heliotrope_operator.parts import Context, Part
from heliotrope_operator.power.asking import DemandController
from heliotrope_operator.power.controller import PowerController
from heliotrope_operator.power.gather import Gatherer
from heliotrope_operator.power.lease import PowerLease
from heliotrope_operator.power.metrics import PowerCollector, PowerMetrics
from heliotrope_operator.power.sources import DemandSources
from heliotrope_operator.resources import Kind


def part(context: Context) -> Part:
    """Controllers of the pass over all policies and of the sources of their demand events."""
    settings, clock = context.settings, context.unix_clock
    metrics = PowerMetrics(context.metrics.registry)
    sources = DemandSources(context.kube, namespace=settings.namespace, unix_clock=clock)
    controller = PowerController(
        context,
        Gatherer(
            context.cluster,
            context.tables,
            {name: profiles.load(name) for name in profiles.available()},
            unix_clock=clock,
        ),
        sources,
        PowerLease(context.writes, namespace=settings.namespace, identity=settings.identity, unix_clock=clock),
        metrics,
    )
    demand = DemandController(context, sources, metrics)
    context.metrics.registry.register(PowerCollector(controller.decided, controller.agents))
    return Part(controllers={Kind.POWER: controller, Kind.DEMAND_RESPONSE: demand}, seeds=(POWER,), close=demand.close)
