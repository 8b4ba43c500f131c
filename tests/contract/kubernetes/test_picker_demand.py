"""The picker on a real API server: an event that the operator says is answered changes how plans are compared."""

import json
from datetime import UTC, datetime

import pytest
from tests.contract.kubernetes.test_picker_source import connection, pool, running
from tests.support.controlplane import Cluster

from heliotrope.decide.asked import NOTHING_ASKED
from heliotrope.decide.policy import DecisionPolicy, Objective
from heliotrope.decide.resolve import policy_for
from heliotrope_epp.datalayer.resources import PoolRef
from heliotrope_epp.datalayer.world import resolve

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

NOW = datetime(2026, 12, 1, 18, tzinfo=UTC).timestamp()
ANSWERED = {
    "event": "evening",
    "since": "2026-12-01T16:55:00Z",
    "start": "2026-12-01T17:00:00Z",
    "end": "2026-12-01T19:00:00Z",
    "watts": 12_000,
    "baselineWatts": 18_000,
}


def policy(namespace: str) -> dict[str, object]:
    return {
        "apiVersion": "heliotrope.io/v1alpha1",
        "kind": "CarbonPolicy",
        "metadata": {"name": "green", "namespace": namespace},
        "spec": {
            "targetRefs": [{"name": "pool"}],
            "slo": {"ttft": "1s", "tpot": "50ms"},
            "demandResponse": {"http": {"url": "https://vtn.example.com"}, "weights": {"energy": "1"}},
        },
    }


async def test_the_answered_event_reaches_the_picker_and_leaves_it(control_plane: Cluster, namespace: str) -> None:
    control_plane.apply(pool(namespace), policy(namespace))

    def report(answered: dict[str, object] | None) -> None:
        control_plane.kubectl(
            "patch", "carbonpolicy", "green", "-n", namespace, "--subresource=status", "--type=merge",
            "-p", json.dumps({"status": {"demandResponse": answered}}),
        )  # fmt: skip

    async with running(namespace, connection(control_plane)) as published:

        def held(at_unix_s: float = NOW) -> DecisionPolicy:
            world = resolve(published.latest, PoolRef(namespace, "pool"), {})
            assert world.problems == ()
            assert world.policy is not None
            return policy_for(world.policy, NOTHING_ASKED, at_unix_s)

        await published.until(lambda: len(published.latest.policies) == 1)
        assert (held().provenance.event, held().objective) == (None, Objective.LEXICOGRAPHIC)

        report(ANSWERED)
        await published.until(lambda: held().provenance.event == "evening")
        assert held().objective is Objective.WEIGHTED
        assert held(NOW + 3_600).provenance.event is None  # the operator may be gone by then
        assert held(NOW - 2 * 3_600).provenance.event is None

        report(None)
        await published.until(lambda: held().provenance.event is None)
