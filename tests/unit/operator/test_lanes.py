"""What goes first: signals, then decisions, then the many writes that follow them."""

import pytest
from tests.unit.operator.objects import variant

from heliotrope.api.v1alpha1.controls import Actuation
from heliotrope_operator.actuation.wanted import Wanted
from heliotrope_operator.cluster import Cluster
from heliotrope_operator.kinds.catalog import watched
from heliotrope_operator.kinds.targets import ALL_ACTUATIONS, actuation_key, scale_target
from heliotrope_operator.lanes import Lane, lane_of, limits
from heliotrope_operator.resources import Key, Kind
from heliotrope_operator.scales import Scale
from heliotrope_operator.settings import Parts
from heliotrope_operator.tables import Tables

VARIANT = Key(Kind.WORKLOAD_VARIANT, "ns", "v")


def known() -> tuple[Cluster, Key]:
    """A cluster with one variant, and the key of its target."""
    cluster = Cluster(watched(Parts(scaling=True)))
    cluster.observe(Kind.WORKLOAD_VARIANT, variant())
    read = cluster.variants.get(VARIANT)
    assert read is not None
    target = scale_target(VARIANT, read)
    assert target is not None
    return cluster, actuation_key(target)


def wanting(replicas: int | None, there: int | None) -> Tables:
    tables = Tables()
    tables.wanted.put(VARIANT, Wanted(replicas, Actuation.SCALE, act=True, reason="R", message="", decided_unix_s=1.0))
    if there is not None:
        tables.scales[VARIANT] = Scale(replicas=there, wanted=there)
    return tables


@pytest.mark.parametrize(
    ("kind", "lane"),
    [
        (Kind.HEARTBEAT, Lane.SIGNALS),
        (Kind.REGION_PROFILE, Lane.SIGNALS),
        (Kind.CARBON_POLICY, Lane.DECISIONS),
        (Kind.ALLOCATION, Lane.DECISIONS),
        (Kind.ACTIVATION, Lane.DECISIONS),
        (Kind.JOB, Lane.DECISIONS),
        (Kind.WORKLOAD_VARIANT, Lane.BULK),
    ],
)
def test_signals_go_before_decisions_and_decisions_before_the_many(kind: Kind, lane: Lane) -> None:
    cluster, _ = known()

    assert lane_of(Key(kind, "ns", "v"), cluster, Tables()) is lane


@pytest.mark.parametrize(
    ("wanted", "there", "lane"),
    [
        (5, 4, Lane.DECISIONS),
        (1, 0, Lane.DECISIONS),
        (4, 4, Lane.BULK),
        (3, 4, Lane.BULK),
        (5, None, Lane.BULK),
        (None, 4, Lane.BULK),
    ],
)
def test_a_target_that_gets_more_replicas_does_not_wait_behind_those_that_get_fewer(
    wanted: int | None, there: int | None, lane: Lane
) -> None:
    cluster, key = known()

    assert lane_of(key, cluster, wanting(wanted, there)) is lane


def test_a_target_that_nobody_scales_any_more_and_the_look_at_all_of_them_can_wait() -> None:
    cluster, key = known()
    cluster.forget(VARIANT)

    assert lane_of(key, cluster, wanting(5, 4)) is Lane.BULK
    assert lane_of(ALL_ACTUATIONS, cluster, Tables()) is Lane.BULK


@pytest.mark.parametrize(("workers", "most"), [(1, 1), (2, 1), (4, 3)])
def test_the_many_leave_a_worker_to_the_others(workers: int, most: int) -> None:
    assert limits(workers) == {Lane.BULK: most}
