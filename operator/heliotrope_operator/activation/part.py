"""Puts activation together."""

import time

from heliotrope.engine import profiles
from heliotrope_operator.activation.controller import ACTIVATION, ActivationController
from heliotrope_operator.activation.engines import Engines
from heliotrope_operator.activation.gather import Gatherer
from heliotrope_operator.activation.metrics import ActivationCollector, ActivationMetrics
from heliotrope_operator.activation.nodes import Nodes
from heliotrope_operator.activation.sleepers import Sleepers
from heliotrope_operator.parts import Context, Part
from heliotrope_operator.resources import Key, Kind


def part(context: Context) -> Part:
    """One controller that passes over all pools again and again."""
    metrics = ActivationMetrics(context.metrics.registry)
    gatherer = Gatherer(
        context.cluster,
        context.tables,
        {name: profiles.load(name) for name in profiles.available()},
        all_namespaces=not context.settings.namespaces,
        unix_clock=context.unix_clock,
    )

    def on_woken(pod: Key) -> None:
        gatherer.history.woken[pod] = context.unix_clock()

    controller = ActivationController(
        context,
        gatherer,
        Sleepers(context, Engines(), metrics, time.monotonic, on_woken),
        Nodes(context, metrics),
    )
    context.metrics.registry.register(ActivationCollector(lambda: controller.decided))
    return Part(controllers={Kind.ACTIVATION: controller}, seeds=(ACTIVATION,), close=controller.close)
