"""A request with an image in `heliotrope explain`."""

import io
import json
from dataclasses import replace

from rich.console import Console
from tests.unit.core.decide.pools import NOW, THREE, pool
from tests.unit.core.decide.test_encode import PROMISE, encoders, encoding, images

from heliotrope.decide import recorded
from heliotrope.decide.decision import decide
from heliotrope_cli.explain_tables import candidate_table


def test_plans_name_where_images_are_encoded() -> None:
    candidates = pool(["c"], THREE)
    made = replace(candidates, encoding=encoding(candidates, encoders(["a"])))
    record, _ = recorded.read(json.dumps(decide(images(300), made, PROMISE, NOW).explanation(), allow_nan=False))
    found = record.carbon_decision
    assert found is not None
    winner = found.winner
    assert winner is not None
    assert (winner.encode_endpoints, winner.encode_regions) == (["v0"], ["a"])
    text = io.StringIO()
    Console(file=text, width=200).print(candidate_table(found))
    assert any("v0 ▸ e0" in line and "a ▸ c" in line for line in text.getvalue().splitlines())
