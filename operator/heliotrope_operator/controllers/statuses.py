"""The part that is always there: it keeps the statuses of RegionProfiles, CarbonPolicies and WorkloadVariants."""

from heliotrope_operator.controllers.policies import PolicyController
from heliotrope_operator.controllers.pools import PoolController
from heliotrope_operator.controllers.regions import RegionController
from heliotrope_operator.controllers.variants import VariantController
from heliotrope_operator.forecasts import Forecasts
from heliotrope_operator.lookup import Lookup
from heliotrope_operator.parts import Context, Part
from heliotrope_operator.resources import Kind
from heliotrope_operator.scales import Scales
from heliotrope_operator.signals import Signals


def part(context: Context) -> Part:
    """Their controllers."""
    settings, cluster, clock, writer = context.settings, context.cluster, context.unix_clock, context.writer
    signals = Signals(
        context.kube,
        context.metrics,
        namespace=settings.namespace,
        folder=settings.folder,
        unix_clock=clock,
        enqueue=context.enqueue,
    )
    forecasts = Forecasts(context.metrics, signals.history, unix_clock=clock, enqueue=context.enqueue)

    async def close() -> None:
        await signals.close()
        await forecasts.close()

    lookup = Lookup(context.kube, cluster, enqueue=context.enqueue)
    return Part(
        controllers={
            Kind.REGION_PROFILE: RegionController(cluster, signals, forecasts, writer, unix_clock=clock),
            Kind.CARBON_POLICY: PolicyController(cluster, lookup, writer, unix_clock=clock),
            Kind.WORKLOAD_VARIANT: VariantController(
                cluster,
                lookup,
                Scales(context.kube),
                writer,
                tables=context.tables if settings.parts.scaling else None,
                poll_s=settings.scale_poll_s,
                unix_clock=clock,
            ),
            Kind.INFERENCE_POOL: PoolController(cluster, writer),
        },
        close=close,
    )
