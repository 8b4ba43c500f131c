"""Replicas wait while new clocks have not shown their effect; advice holds up nobody."""

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.operator import objects
from tests.unit.operator.planning.fleet import BROWN, GREEN, PROFILE, Fleet

from heliotrope.api import documents
from heliotrope.api.v1alpha1 import WorkloadVariant
from heliotrope_operator.planning.controller import ALLOCATION
from heliotrope_operator.turns import clocks_settle


def chosen(since_unix_s: float, enforcement: str = "Enforce") -> dict[str, Any]:
    since = datetime.fromtimestamp(since_unix_s, UTC).isoformat().replace("+00:00", "Z")
    return {"chosenPower": [{"role": "both", "smClockMhz": 900, "since": since, "enforcement": enforcement}]}


def read(status: dict[str, Any] | None) -> WorkloadVariant:
    found = documents.parse(objects.variant() | ({} if status is None else {"status": status}))
    assert isinstance(found, WorkloadVariant)
    return found


def test_clocks_settle_for_two_minutes() -> None:
    assert [clocks_settle(read(chosen(1_000.0)), at) for at in (1_000.0, 1_119.0, 1_120.0)] == [True, True, False]
    assert not clocks_settle(read(chosen(1_000.0, "Advise")), 1_000.0)
    assert not clocks_settle(read(None), 1_000.0)
    assert not clocks_settle(read({"chosenPower": [{"role": "both", "watts": 400}]}), 1_000.0)


@pytest.mark.slow
@pytest.mark.parametrize("enforcement", ["Enforce", "Advise"])
async def test_while_clocks_change_no_replica_is_taken_away(enforcement: str) -> None:
    fleet = Fleet(replicas=3)
    wanted = []
    for _ in range(60):
        await fleet.run(30.0, 2.0)
        for name in (GREEN, BROWN):
            labels = {"app": "vllm", "variant": name}
            document = objects.variant(
                name, target=name, region=name, labels=labels, maxReplicas=8, minReplicas=0, engine={"profile": PROFILE}
            )
            fleet.observe(document | {"status": chosen(fleet.now_s - 10.0, enforcement)})
        await fleet.controller.reconcile(ALLOCATION)
        for name in (GREEN, BROWN):
            replicas = fleet.wanted(name)
            if replicas is not None:
                fleet.scale(name, replicas)
        wanted.append((fleet.wanted(GREEN), fleet.wanted(BROWN)))
    if enforcement == "Advise":
        assert wanted[-1][1] == 0
    else:
        first = next(each for each in wanted if None not in each)
        assert all(now >= then for now, then in zip(wanted[-1], first, strict=True) if now is not None)
        assert wanted[-1][1] == 3
