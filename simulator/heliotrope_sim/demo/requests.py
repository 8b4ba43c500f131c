"""All requests of an arm: questions of their own and conversations, at the scenario's share of capacity."""

from dataclasses import replace

from heliotrope.engine import profiles
from heliotrope_sim.data import data_file
from heliotrope_sim.demo.plan import PlannedRequest, plan
from heliotrope_sim.demo.scenario import Scenario
from heliotrope_sim.demo.sizing import mixed, saturated_requests_per_second
from heliotrope_sim.demo.talks import as_requests, plan_talks, shortened
from heliotrope_sim.workload.conversations import conversations, load_chains
from heliotrope_sim.workload.trace import load_azure, stretch


def planned_requests(scenario: Scenario) -> tuple[list[PlannedRequest], float]:
    """The requests of every arm in the order of their times, and what the fleet completes per second when saturated.

    Capacity is that of engines which find nothing in their caches.

    Raises:
        InvalidInputError: if a trace is too short or cannot be read.
    """
    questions = load_azure(data_file(scenario.trace))
    model = replace(profiles.load(scenario.profile), max_num_seqs=scenario.max_num_seqs)
    engines = sum(region.engines for region in scenario.regions)
    share = scenario.talks.share
    talks = shortened(conversations(load_chains(data_file(scenario.talks.trace))), scenario.talks) if share else []
    mean = mixed(questions[scenario.trace_skip :], as_requests(talks), share)
    capacity = engines * saturated_requests_per_second(model, mean)
    rate = scenario.load * capacity
    planned = plan(
        stretch(
            questions,
            skip=scenario.trace_skip,
            rate_per_second=(1.0 - share) * rate,
            seconds=scenario.arrival_seconds,
        ),
        model=scenario.model,
        stream_share=scenario.stream_share,
        seed=scenario.seed,
    )
    if share:
        planned += plan_talks(
            talks, turns=round(share * rate * scenario.arrival_seconds), scenario=scenario, model=model
        )
    return sorted(planned, key=lambda request: request.arrival_seconds), capacity
