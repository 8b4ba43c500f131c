from dataclasses import replace

import pytest

from heliotrope.engine import profiles
from heliotrope.errors import InvalidInputError
from heliotrope_sim.demo.grids import region_documents, series_on_the_wall
from heliotrope_sim.demo.requests import planned_requests
from heliotrope_sim.demo.scenario import Scenario, Talks
from heliotrope_sim.demo.sizing import saturated_requests_per_second
from heliotrope_sim.engine.loop import Engine, Request
from heliotrope_sim.workload.trace import TraceRequest

SCENARIO = Scenario()


@pytest.mark.parametrize(
    "changes",
    [
        {"load": 0.0},
        {"load": 9.0},
        {"arrival_seconds": 0.0},
        {"stream_share": 1.1},
        {"drain_seconds": -1.0},
        {"talks": Talks(share=1.0)},
    ],
)
def test_meaningless_settings_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError):
        replace(SCENARIO, **changes)  # type: ignore[arg-type]


def test_the_offered_load_is_the_scenarios_share_of_capacity() -> None:
    planned, capacity = planned_requests(SCENARIO)
    assert len(planned) == pytest.approx(SCENARIO.load * capacity * SCENARIO.arrival_seconds, abs=1)
    times = [p.arrival_seconds for p in planned]
    assert times == sorted(times)
    assert times[0] == 0.0
    assert times[-1] == pytest.approx(SCENARIO.arrival_seconds)
    assert sum(p.streaming for p in planned) == pytest.approx(len(planned) / 2, abs=2)
    turns = [p for p in planned if p.conversation is not None]
    assert len(turns) == pytest.approx(SCENARIO.talks.share * len(planned), abs=1)
    model = profiles.load(SCENARIO.profile)
    step = float(model.decode_seconds(16.0, 16.0 * 1_500.0))
    last = max(p.arrival_seconds + p.output_tokens * step for p in planned)
    assert last < SCENARIO.horizon_seconds - 2.0, "every answer must end within the arm"
    one_region = capacity / len(SCENARIO.regions)
    assert one_region < SCENARIO.load * capacity, "the cleanest region must not carry it alone"


def test_capacity_is_what_the_emulated_engine_reaches() -> None:
    model = replace(profiles.load(SCENARIO.profile), max_num_seqs=SCENARIO.max_num_seqs)
    requests = [TraceRequest(0.0, 1000, 200)] * 200
    engine = Engine(model)
    for i, request in enumerate(requests):
        engine.submit(Request(f"r{i}", request.prompt_tokens, request.output_tokens), 0)
    now_ns = finished = 0
    while (step := engine.step(now_ns)) is not None:
        now_ns, finished = step.end_ns, finished + len(step.finished)
    assert finished == len(requests)
    measured = finished / (now_ns / 1e9)
    # The estimate is of an engine that never empties; at the end of this run the batch does.
    assert saturated_requests_per_second(model, requests) == pytest.approx(measured, rel=0.12)


def test_picker_and_meter_see_the_same_grids() -> None:
    start = 1_800_000_000.0
    series = series_on_the_wall(SCENARIO, start)
    documents = {d["metadata"]["name"]: d["spec"] for d in region_documents(SCENARIO, start)}
    assert set(series) == set(documents) == {r.name for r in SCENARIO.regions}
    for region in SCENARIO.regions:
        replay = documents[region.name]["source"]["file"]["replay"]
        assert replay["wallStart"] == "2027-01-15T08:00:00Z"
        assert replay["speed"] == SCENARIO.speed
        assert series[region.name].average(start, start + SCENARIO.horizon_seconds) is not None


def test_constant_grids_replace_the_recorded_ones() -> None:
    scenario = replace(SCENARIO, constant_intensities={"norway": 1.0, "spain": 2.0, "california": 3.5})
    series = series_on_the_wall(scenario, 1000.0)
    assert series["california"].average(1000.0, 1044.0) == 3.5
    source = region_documents(scenario, 1000.0)[2]["spec"]["source"]
    assert source == {"static": {"intensityGramsPerKwh": "3.5"}}
