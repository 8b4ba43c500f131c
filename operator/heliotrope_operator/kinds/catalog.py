"""Which kinds are watched: those that status needs always, the rest for the parts that are switched on."""

from typing import Any

from heliotrope_operator.kinds import (
    admissionchecks,
    autoscalers,
    jobs,
    namespaces,
    nodepowers,
    nodes,
    pods,
    policies,
    pools,
    regions,
    variants,
    workloads,
)
from heliotrope_operator.kinds.spec import KindSpec
from heliotrope_operator.settings import Parts


def watched(parts: Parts) -> list[KindSpec[Any]]:
    """Their specs, in the order in which they are listed at start."""
    specs: list[KindSpec[Any]] = [regions.spec(), policies.spec(), variants.spec(), pools.spec()]
    if parts.granted:
        specs.append(namespaces.spec())
    if parts.engines:
        specs += [nodes.spec(), pods.spec()]
    if parts.scaling:
        specs += [autoscalers.hpas(), autoscalers.scaled_objects(), autoscalers.variant_autoscalings()]
    if parts.power:
        specs.append(nodepowers.spec())
    if parts.deferral:
        specs.append(jobs.spec())
    if parts.deferral and parts.kueue:
        specs += [admissionchecks.spec(), workloads.spec()]
    return specs
