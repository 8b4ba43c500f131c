"""What several pickers with the same old view do to a pool, with and without draws among plans that tie.

    uv run python -m tests.support.herding

Real pipelines under one policy, over equal engines of one region, the first of which has just lost its load. Between
two scrapes each picker knows the state of the last scrape and what it has sent itself since, never what the others
send; requests take turns at random. Counted is the largest share of a scrape's requests that went to one engine, and
the batch that requests really met there.
"""

import sys
from dataclasses import dataclass, replace
from random import Random

import numpy as np
from tests.unit.epp.plugins.builders import Carbon

from heliotrope.decide.policy import DEFAULT_ORDER, DecisionPolicy, Term
from heliotrope.engine.profiles import load as load_profile
from heliotrope_epp.config.loader import load
from heliotrope_epp.datalayer.endpoint import Endpoint, EngineMetrics, Traits
from heliotrope_epp.datalayer.inflight import Dispatch
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.plugins.builtin import builtin_registry
from heliotrope_epp.plugins.context import PluginContext
from heliotrope_epp.plugins.interface import LlmRequest
from heliotrope_epp.plugins.pipeline import Pipeline

ENGINE = load_profile("llama-3.1-8b-h100")
BUSY = 12.0
"""Sequences in the batch of every engine but the first."""
SCRAPE_S = 0.2
NOW_UNIX_S = 1_700_000_000.0
BY_LATENCY = DecisionPolicy("herd", order=(Term.CARBON, Term.LATENCY), ttft_slo_seconds=10.0, tpot_slo_seconds=1.0)
OVERLOADED = replace(BY_LATENCY, ttft_slo_seconds=1e-4)
BY_ENERGY = replace(BY_LATENCY, order=DEFAULT_ORDER)
"""Prefers engines that are awake, so it fills what is busy as far as promises allow."""


@dataclass(frozen=True, slots=True)
class Herd:
    """A pool under several pickers; requests are those of all pickers together."""

    pickers: int
    endpoints: int = 16
    requests_per_scrape: int = 48
    scrapes: int = 4


@dataclass(frozen=True, slots=True)
class Spread:
    """How requests were spread."""

    largest_share: float
    """Of a scrape's requests, mean over the scrapes."""
    mean_batch: float
    """Sequences that a request really met at its engine."""


class _Picker:
    def __init__(self, name: str, endpoints: int, policy: DecisionPolicy) -> None:
        context = PluginContext(carbon=Carbon(policy, here=50.0), random=Random(1), instance=name)
        self._pipeline = Pipeline(load("", builtin_registry(), context).scheduling, context)
        traits = Traits(region="here", engine=ENGINE)
        self._states = [EndpointState(Endpoint(f"engine-{i}", "ns", "10.0.0.1", i), traits) for i in range(endpoints)]
        self._rows = {state.endpoint.key: row for row, state in enumerate(self._states)}
        self._open: list[tuple[EndpointState, Dispatch]] = []

    def scraped(self, running: np.ndarray[tuple[int], np.dtype[np.float64]], now_s: float) -> None:
        """What it sent before counts as others' load from now on."""
        for state, dispatch in self._open:
            state.inflight.remove(dispatch)
        self._open.clear()
        for state, batch in zip(self._states, running.tolist(), strict=True):
            state.scraped(EngineMetrics(now_s, batch, 0.0, 0.001 * batch, block_size=16, num_blocks=20_000))

    def send(self, request_id: str, now_s: float) -> int:
        """Decide and dispatch; the row of the engine."""
        prompt = request_id.encode() * 100
        request = LlmRequest(request_id, "/v1/completions", "m", prompt, len(prompt) // 4, None, 100.0, streaming=False)
        result = self._pipeline.run(request, self._states, now_s, NOW_UNIX_S)
        state = result.pick.options[0].state
        dispatch = Dispatch(now_s, float(request.prompt_tokens), float(request.prompt_tokens), now_s, 100.0)
        state.inflight.add(dispatch, 0.0)
        self._open.append((state, dispatch))
        return self._rows[state.endpoint.key]


def simulate(herd: Herd, *, choices: int, policy: DecisionPolicy = BY_LATENCY, seed: int = 1) -> Spread:
    """Play all scrapes; half of what runs has ended by the next one."""
    rng = Random(seed)
    policy = replace(policy, choices=choices)
    pickers = [_Picker(f"picker-{i}", herd.endpoints, policy) for i in range(herd.pickers)]
    running = np.full(herd.endpoints, BUSY)
    running[0] = 0.0
    shares, met = [], []
    for scrape in range(herd.scrapes):
        start_s = 100.0 + scrape * SCRAPE_S
        sent = np.zeros(herd.endpoints)
        for picker in pickers:
            picker.scraped(running, start_s)
        for number in range(herd.requests_per_scrape):
            now_s = start_s + SCRAPE_S * (number + 1) / (herd.requests_per_scrape + 1)
            row = rng.choice(pickers).send(f"{seed}-{scrape}-{number}", now_s)
            met.append(running[row] + sent[row])
            sent[row] += 1.0
        shares.append(sent.max() / sent.sum())
        running = np.floor(0.5 * (running + sent))
    return Spread(float(np.mean(shares)), float(np.mean(met)))


def table(policy: DecisionPolicy) -> str:
    """Largest share and mean batch by pickers and choices, as a Markdown table."""
    choices = (0, 1, 2, 3)
    head = " | ".join("all compared" if k == 0 else f"{k} drawn" for k in choices)
    lines = [f"| pickers | {head} |", "|---" * (len(choices) + 1) + "|"]
    for pickers in (1, 2, 4, 8):
        cells = []
        for k in choices:
            found = [simulate(Herd(pickers), choices=k, policy=policy, seed=seed) for seed in range(5)]
            share, batch = (
                np.mean([getattr(each, name) for each in found]) for name in ("largest_share", "mean_batch")
            )
            cells.append(f"{share:.0%}, batch {batch:.1f}")
        lines.append(f"| {pickers} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    for heading, each in (
        ("Order `carbon, latency`", BY_LATENCY),
        ("The same where nothing keeps the promise", OVERLOADED),
        ("Order `carbon, energy, cost, latency`, which prefers engines that are awake", BY_ENERGY),
    ):
        sys.stdout.write(f"\n{heading}:\n\n{table(each)}\n")
