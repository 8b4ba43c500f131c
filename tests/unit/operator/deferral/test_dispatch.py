"""Dispatch budgets of pools."""

from tests.unit.operator import objects
from tests.unit.operator.deferral.documents import cluster_of, policy, region
from tests.unit.operator.objects import NOW_S, Document
from tests.unit.operator.virtual import run_virtual

from heliotrope_operator.deferral.dispatch import DISPATCH, EVERY_S, OUTDATED_S, DispatchController

DIRTY = (500.0, *[100.0 + 10.0 * hour for hour in range(12)])
CLEAN = (50.0, *[300.0] * 12)


def budgets(*documents: Document, later_s: float = 0.0) -> dict[str, float]:
    clock = [0.0]
    controller = DispatchController(cluster_of(*documents), unix_clock=lambda: NOW_S, monotonic=lambda: clock[0])
    assert run_virtual(controller.reconcile(DISPATCH)) == EVERY_S
    clock[0] = later_s
    return {pool: share for _, pool, share in controller.published()}


def test_a_dirty_hour_holds_batch_work_back_and_a_clean_one_does_not() -> None:
    pool, variant = objects.pool(), objects.variant(region="es", target=None)

    assert budgets(pool, variant, policy(), region("es", *DIRTY))["pool"] < 0.4
    assert budgets(pool, variant, policy(), region("es", *CLEAN)) == {"pool": 1.0}


def test_of_two_regions_the_clean_one_counts() -> None:
    here, there = objects.variant("v", region="es", target=None), objects.variant("w", region="fr", target=None)

    found = budgets(objects.pool(), here, there, policy(), region("es", *DIRTY), region("fr", *CLEAN))

    assert found == {"pool": 1.0}


def test_what_is_not_known_is_dispatched() -> None:
    pool, variant = objects.pool(), objects.variant(region="es", target=None)

    assert budgets(pool, policy(), region("es", *DIRTY)) == {"pool": 1.0}
    assert budgets(pool, variant, policy()) == {"pool": 1.0}
    assert budgets(pool, variant, policy(), region("es", *DIRTY, freshness="Stale")) == {"pool": 1.0}


def test_only_a_policy_that_asks_for_it_and_holds_gets_one() -> None:
    pool, variant, dirty = objects.pool(), objects.variant(region="es", target=None), region("es", *DIRTY)

    assert budgets(pool, variant, objects.policy(), dirty) == {}
    assert budgets(pool, variant, policy(dispatchBudget=False), dirty) == {}
    assert budgets(variant, policy(), dirty) == {}
    older = objects.policy("older", created="2025-01-01")
    assert budgets(pool, variant, policy(), older, dirty) == {}


def test_old_budgets_are_not_published() -> None:
    pool, variant = objects.pool(), objects.variant(region="es", target=None)

    assert budgets(pool, variant, policy(), region("es", *CLEAN), later_s=OUTDATED_S) == {}
