"""A split request in `heliotrope explain`."""

import io
import json

from rich.console import Console
from tests.unit.core.decide.pools import NOW, POLICY, THREE, pool
from tests.unit.core.decide.test_phases import LONG, idle, paired

from heliotrope.decide import recorded
from heliotrope.decide.decision import decide
from heliotrope_cli.explain_tables import candidate_table


def test_plans_that_are_split_name_both_endpoints_and_regions() -> None:
    decision = decide(LONG, paired(pool(["c"], THREE, running=[8.0]), idle(["a"])), POLICY, NOW)
    record, _ = recorded.read(json.dumps(decision.explanation(), allow_nan=False))
    found = record.carbon_decision
    assert found is not None
    assert {r.name for r in found.regions} == {"a", "c"}
    winner = found.winner
    assert winner is not None
    assert (winner.prefill_endpoint, winner.endpoint, winner.prefill_region, winner.region) == ("p0", "e0", "a", "c")
    assert winner.prefiller_joules is not None
    assert winner.prefiller_joules > 0.0
    text = io.StringIO()
    Console(file=text, width=200).print(candidate_table(found))
    lines = text.getvalue().splitlines()
    assert any("p0 → e0" in line and "a → c" in line for line in lines)
    assert sum("→" in line for line in lines) == 1
