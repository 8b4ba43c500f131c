"""Puts planning together: demand is followed for every part that asks for it, replicas are planned for scaling."""

import time

from heliotrope.engine import profiles
from heliotrope.providers.http import Network
from heliotrope.providers.prometheus_api import PrometheusApi, open_access
from heliotrope.scale.pace import USUAL_INTERVAL_SECONDS
from heliotrope_operator.capacities import Capacities
from heliotrope_operator.parts import Context, Part
from heliotrope_operator.planning.controller import ALLOCATION, AllocationController
from heliotrope_operator.planning.corrections import CorrectionCollector
from heliotrope_operator.planning.gather import Gatherer
from heliotrope_operator.planning.histories import Histories
from heliotrope_operator.planning.metrics import GroupCollector, PlanningMetrics
from heliotrope_operator.planning.pickers import Pickers
from heliotrope_operator.planning.prometheus import DemandQueries, access_to
from heliotrope_operator.planning.remembered import Remembered
from heliotrope_operator.planning.starts import Starts
from heliotrope_operator.planning.watch import DemandWatch, Observed
from heliotrope_operator.resources import Key, Kind
from heliotrope_operator.secrets import OwnSecrets


def part(context: Context) -> Part:
    """The loop that asks pickers, and the controller that plans."""
    cluster, settings = context.cluster, context.settings
    pickers = Pickers(context.kube, clock=time.monotonic)
    histories = Histories()

    def on_round(pool: Key, observed: Observed) -> None:
        variants = (cluster.variants.get(key) for key in cluster.variants_of(pool))
        models = {variant.spec.model for variant in variants if variant is not None}
        policy = cluster.winner(pool)
        scaling = None if policy is None else policy.spec.autoscaling
        interval_s = USUAL_INTERVAL_SECONDS if scaling is None else scaling.interval.total_seconds()
        histories.add(pool, models - observed.gaps.keys(), observed.models, context.unix_clock(), interval_s)

    woken = [ALLOCATION] if settings.parts.scaling else []
    if settings.parts.activation:
        woken.append(Key(Kind.ACTIVATION, "", ""))
    watch = DemandWatch(
        cluster,
        context.tables,
        pickers,
        poll_s=settings.demand_poll_s,
        clock=time.monotonic,
        unix_clock=context.unix_clock,
        on_round=on_round,
        wake=lambda: context.enqueue(woken),
        remembered=lambda pool: (
            (None, None) if remembered is None else (remembered.told(pool), remembered.problem(pool))
        ),
    )
    remembered = _remembered(context, histories, watch)
    helpers = (watch.run,) if remembered is None else (watch.run, remembered.run)
    if not settings.parts.scaling:
        return Part(helpers=helpers, close=pickers.close)
    gatherer = Gatherer(cluster, context.tables, watch, histories, Starts(), unix_clock=context.unix_clock)
    capacities = Capacities({name: profiles.load(name) for name in profiles.available()})
    metrics = PlanningMetrics(context.metrics.registry)
    controller = AllocationController(context, gatherer, watch, capacities, metrics)
    context.metrics.registry.register(CorrectionCollector(controller.corrections))
    context.metrics.registry.register(
        GroupCollector(
            lambda: controller.groups,
            lambda: pickers.counts,
            lambda: {} if remembered is None else dict(remembered.counts),
        )
    )
    return Part(controllers={Kind.ALLOCATION: controller}, seeds=(ALLOCATION,), helpers=helpers, close=pickers.close)


def _remembered(context: Context, histories: Histories, watch: DemandWatch) -> Remembered | None:
    wanted = context.settings.prometheus
    if wanted is None:
        return None
    namespace = context.settings.namespace
    secrets = OwnSecrets(context.kube, namespace)
    access = open_access if wanted.secret is None else access_to(secrets, namespace, wanted.secret)
    return Remembered(
        context.cluster,
        histories,
        DemandQueries(PrometheusApi(Network(), wanted.url, access)),
        silent=watch.silent,
        clock=time.monotonic,
        unix_clock=context.unix_clock,
    )
