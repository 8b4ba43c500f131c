"""What a picker takes to be on its way between endpoints, and what that makes of the next pull."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.core.decide.pools import NOW, POLICY, THREE, pool
from tests.unit.core.decide.test_phases import LONG, busy, idle, paired
from tests.unit.epp.plugins.builders import option, state
from tests.unit.epp.tracing.bench import Bench, Gateway, chat, report

from heliotrope.cache.crowd import side_of
from heliotrope.cache.links import LinkClass
from heliotrope.decide.compared import Planned
from heliotrope.decide.estimate import estimate
from heliotrope_epp.plugins.options import Options
from heliotrope_epp.plugins.transfers_in_flight import MAX_TRANSFERS, TransfersInFlight
from heliotrope_epp.tracing import attributes as a

NODE = side_of(LinkClass.NODE)
HOST = {"kubernetes.io/hostname": "node-1"}
STATES = [state(name, labels=HOST) for name in ("a", "b", "c")]
OPTIONS = Options.of([option(each) for each in STATES])


def pull(seconds: float = 2.0) -> Planned:
    candidates = pool(["a"], THREE, transfer_seconds=seconds)
    return Planned(candidates, estimate(LONG, candidates, POLICY, NOW), 0)


def test_a_pull_is_on_its_way_for_as_long_as_it_was_estimated() -> None:
    transfers = TransfersInFlight()
    assert transfers.crowd(OPTIONS, 10.0) is None
    transfers.caused(pull(), STATES[0], STATES[1], 10.0)
    transfers.caused(pull(3.0), STATES[0], STATES[2], 10.5)
    crowd = transfers.crowd(OPTIONS, 11.0)
    assert crowd is not None
    assert crowd.out[NODE].tolist() == [2.0, 0.0, 0.0]
    assert crowd.into[NODE].tolist() == [0.0, 1.0, 1.0]
    assert crowd.out[1 - NODE].tolist() == crowd.into[1 - NODE].tolist() == [0.0] * 3
    assert transfers.count(11.0) == 2
    later = transfers.crowd(OPTIONS, 12.0)
    assert later is not None
    assert later.into[NODE].tolist() == [0.0, 0.0, 1.0]
    assert transfers.crowd(Options.of([option(STATES[1])]), 12.0) is None
    assert transfers.crowd(OPTIONS, 13.5) is None
    assert len(transfers) == 0


def test_blocks_of_a_pair_are_on_their_way_after_the_prefill() -> None:
    made = paired(busy(), idle())
    plan = Planned(made, estimate(LONG, made, POLICY, NOW), len(made) - 1)
    transfers = TransfersInFlight()
    transfers.caused(plan, STATES[0], STATES[1], 0.0)
    assert transfers.crowd(OPTIONS, 0.0) is None
    begins_s = plan.transfer_begins_seconds
    assert transfers.crowd(OPTIONS, begins_s) is not None
    assert transfers.crowd(OPTIONS, begins_s + float(made.transfer_seconds[-1])) is None


def test_what_is_unknown_counts_for_none() -> None:
    transfers = TransfersInFlight()
    nowhere = state("nowhere")
    nowhere.endpoint = replace(nowhere.endpoint, address="", node_address=None)
    for plan, reader in ((pull(float("nan")), STATES[1]), (pull(0.0), STATES[1]), (pull(), nowhere)):
        transfers.caused(plan, STATES[0], reader, 0.0)
    assert len(transfers) == 0


def test_it_is_bounded_and_forgets_who_is_gone() -> None:
    transfers = TransfersInFlight()
    for _ in range(MAX_TRANSFERS + 3):
        transfers.caused(pull(), STATES[0], STATES[1], 0.0)
    assert (len(transfers), transfers.dropped) == (MAX_TRANSFERS, 3)
    # Those that have ended make room.
    transfers.caused(pull(), STATES[0], STATES[2], 5.0)
    assert (len(transfers), transfers.dropped) == (1, 3)
    transfers.forget("default/c")
    assert len(transfers) == 0


CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: approx-prefix-cache-producer}
- {type: carbon-picker, parameters: {kvLinks: {node: {bytesPerSecond: 2.0e+10}}}}
schedulingProfiles:
- {name: default, plugins: [{pluginRef: carbon-picker}]}
"""


def prompt(text: str) -> bytes:
    return chat(messages=[{"role": "user", "content": f"{text} " * 800}])


def pulls(pause_ticks: int) -> list[dict[str, Any]]:
    """Spans of two pulls from the dirty endpoint to the clean one, the second so much after the first."""
    bench = Bench(config=CONFIG)
    for each in bench.store.states():
        each.endpoint = replace(each.endpoint, labels={**HOST, "heliotrope.io/kv-transfer": "p2p"})
    for text in ("one", "two"):
        first = bench.send(Gateway(prompt(text), subset=("10.0.0.0:8000",)))
        bench.director.done(first.ctx, report(prompt=800, output=1, cached=0))
    for text in ("one", "two"):
        bench.ticks += pause_ticks
        bench.send(Gateway(prompt(text)))
    spans = [dict(span.attributes or {}) for span in bench.spans() if span.name == a.ORCHESTRATION.name]
    return spans[-2:]


def test_a_second_pull_shares_the_link_with_the_first() -> None:
    for each in (apart := pulls(300)):
        assert (each[a.KV_ACTION.name], each[a.KV_SOURCE.name]) == ("PeerTransfer", "ns/a")
    together = pulls(0)
    assert together[0][a.KV_TRANSFER_SECONDS.name] == pytest.approx(apart[0][a.KV_TRANSFER_SECONDS.name])
    alone, shared = (spans[1][a.KV_TRANSFER_SECONDS.name] for spans in (apart, together))
    latency = 0.5e-3
    assert shared - latency == pytest.approx(2.0 * (alone - latency))
    assert together[1][a.KV_TRANSFER_JOULES.name] == pytest.approx(apart[1][a.KV_TRANSFER_JOULES.name])
