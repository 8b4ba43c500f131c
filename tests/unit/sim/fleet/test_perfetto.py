"""The trace file: spans that nest, counters that add up, and no more of either than allowed."""

import json
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from tests.unit.sim.fleet.single import one_site, settings

from heliotrope.engine.model import EngineModel
from heliotrope.errors import InvalidInputError
from heliotrope_sim.fleet import perfetto
from heliotrope_sim.fleet.arrivals import poisson
from heliotrope_sim.fleet.lengths import Lengths
from heliotrope_sim.fleet.results import Results
from heliotrope_sim.fleet.simulate import simulate


@pytest.fixture(scope="module")
def results(model: EngineModel) -> Results:
    lengths = Lengths(40.0, 12.0, most_prompt_tokens=100, most_output_tokens=50)
    return simulate(one_site(model, nodes=2), poisson(8.0, 5.0, seed=4, lengths=lengths), settings(window_seconds=0.05))


def test_every_span_ends_and_nests_in_its_request(results: Results, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    assert perfetto.write(results, path) == len(results.workload)
    events = json.loads(path.read_text())["traceEvents"]
    spans: dict[int, list[dict[str, float]]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "request":
            spans[event["id"]].append(event)
    assert len(spans) == len(results.workload)
    for r, of_request in spans.items():
        opened = {e["name"]: e["ts"] for e in of_request if e["ph"] == "b"}
        closed = {e["name"]: e["ts"] for e in of_request if e["ph"] == "e"}
        assert opened.keys() == closed.keys()
        inner = [name for name in opened if name != "request"]
        assert sum(closed[n] - opened[n] for n in inner) == pytest.approx(closed["request"] - opened["request"])
        assert closed["request"] == pytest.approx(results.finished_ns[r] / 1e3)


def test_a_range_and_a_limit_bound_the_file(results: Results, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    shown = perfetto.write(results, path, start_seconds=1.0, end_seconds=3.0, most_requests=5)
    document = json.loads(path.read_text())
    assert shown <= 5 < document["otherData"]["requests"] < len(results.workload)
    kinds = Counter(event["ph"] for event in document["traceEvents"])
    assert kinds["b"] == kinds["e"] == 5 * shown
    counters = [event for event in document["traceEvents"] if event["ph"] == "C"]
    assert all(event["args"]["running"] >= 0 and event["args"]["waiting"] >= 0 for event in counters)
    assert max(event["args"]["running"] for event in counters) > 0
    assert 1e6 <= counters[0]["ts"] <= counters[-1]["ts"] <= 3e6


def test_an_empty_range_is_an_error(results: Results, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="not after"):
        perfetto.write(results, tmp_path / "trace.json", start_seconds=2.0, end_seconds=1.0)
