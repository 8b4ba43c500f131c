"""`heliotrope explain`: every kind of decision there and back, what people read of it, and files from anywhere."""

import asyncio
import io
import json
import math
import socket
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from tests.unit.core.decide.pools import NOW, POLICY, REQUEST, THREE, pool, region

from heliotrope.cache.gate import OFF
from heliotrope.cache.session_rules import SessionMode, SessionRules
from heliotrope.cache.sessions import SessionView
from heliotrope.carbon.arms import Arm
from heliotrope.decide import recorded
from heliotrope.decide.asked import Asked
from heliotrope.decide.decision import Decision, decide
from heliotrope.decide.explanation import MAX_CANDIDATES
from heliotrope.decide.holdout import Assignment
from heliotrope.decide.policy import Comparison, DemandEvent, Objective, PowerLimit, ServiceClass, Term
from heliotrope.decide.resolve import policy_for
from heliotrope.decide.session import with_session
from heliotrope.decide.standing import Standing
from heliotrope.errors import InvalidInputError
from heliotrope_cli import quantities
from heliotrope_cli.explain_tables import ranked
from heliotrope_cli.explain_text import sentences, why_lost
from heliotrope_cli.main import main
from heliotrope_cli.picker_client import DecisionNotKeptError, PickerUnreachableError
from heliotrope_cli.picker_client import decision as asked
from heliotrope_epp.telemetry.admin import AdminServer

STEERED = Assignment(Arm.STEERED, "m|stream|prompt <1024|output <256")
NAN = float("nan")


def within_slo() -> Decision:
    return decide(REQUEST, pool(["c", "a", "b"], THREE), POLICY, NOW, assignment=STEERED)


def best_effort() -> Decision:
    impossible = replace(POLICY, ttft_slo_seconds=0.0001)
    return decide(REQUEST, pool(["a", "c"], THREE, running=[30.0, 1.0]), impossible, NOW, assignment=STEERED)


def nothing_feasible() -> Decision:
    strict = replace(POLICY, allowed_regions=frozenset({"a"}), quality_floor=0.5)
    return decide(REQUEST, pool(["b", "a"], THREE, quality=[1.0, NAN]), strict, NOW, assignment=STEERED)


def unknown_latency() -> Decision:
    return decide(REQUEST, pool(["a", "c"], THREE, running=[NAN, NAN], base_score=[0.1, 0.9]), POLICY, NOW)


def advise() -> Decision:
    return decide(REQUEST, pool(["a", "b"], THREE), replace(POLICY, enforce=False), NOW)


def holdout() -> Decision:
    blind = Assignment(Arm.HOLDOUT, STEERED.request_class)
    return decide(REQUEST, pool(["a", "c"], THREE, base_score=[0.1, 0.9]), POLICY, NOW, assignment=blind)


def stale_signal() -> Decision:
    views = {**THREE, "a": region("a", 20.0, age_s=61.0)}
    return decide(REQUEST, pool(["a", None, "c"], views, running=[4.0, 4.0, 9.0]), POLICY, NOW, assignment=STEERED)


def kept_session() -> Decision:
    pinned = replace(POLICY, sessions=SessionRules(SessionMode.PIN))
    proposal = decide(REQUEST, pool(["a", "c"], THREE), pinned, NOW, assignment=STEERED)
    return with_session(proposal, SessionView(4, "e1", 700, 12.0, 9.0), OFF, "header")


KINDS: list[Callable[[], Decision]] = [
    within_slo,
    best_effort,
    nothing_feasible,
    unknown_latency,
    advise,
    holdout,
    stale_signal,
    kept_session,
]


def record_of(decision: Decision, **changes: Any) -> recorded.Recorded:
    return recorded.read(json.dumps({**decision.explanation(), **changes}, allow_nan=False))[0]


def told(decision: Decision) -> str:
    return "\n".join(sentences(record_of(decision)))


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.__name__)
def test_every_kind_of_decision_survives_the_file(kind: Callable[[], Decision]) -> None:
    decision = kind()
    document = decision.explanation()
    record = record_of(decision)
    found = record.carbon_decision
    assert found is not None
    assert (found.outcome, found.endpoint, found.decided_by) == (
        decision.outcome,
        decision.endpoint,
        decision.decided_by,
    )
    assert found.arm == decision.assignment.arm
    for candidate, row in zip(found.candidates, document["candidates"], strict=True):
        dumped = candidate.model_dump()
        assert {name: dumped[name] for name in row} == row
    for found_region, row in zip(found.regions, document["regions"], strict=True):
        assert found_region.model_dump().items() <= row.items()
    assert found.constraints is not None
    assert found.constraints.ttft_slo_seconds == decision.policy.ttft_slo_seconds
    assert found.objective is not None
    assert found.objective.tolerances == {t.value: v for t, v in decision.policy.tolerances.items()}
    assert (found.winner is None) == (decision.winner is None)
    text = told(decision)
    assert "nan" not in text.lower()
    for candidate in found.candidates:
        assert why_lost(candidate, found)


def test_a_choice_by_carbon_names_both_numbers() -> None:
    decision = within_slo()
    grams = decision.estimates.grams_co2e
    text = told(decision)
    assert (
        f"Sent to e1 (a) because of carbon: {quantities.grams(grams[1])} against {quantities.grams(grams[2])} at e2 (b)"
        in text
    )
    assert "Lexicographic: carbon (within 2%), energy (within 5%)" in text
    assert "TTFT 3 s, TPOT 100 ms with 3 standard deviations to spare" in text
    assert "Arm policy, class m|stream|prompt <1024|output <256." in text


def test_what_is_said_of_each_kind() -> None:
    assert "as best effort: no endpoint keeps the promise, and its TTFT of" in told(best_effort())
    assert "Refused: region not allowed (1), quality below the floor (1)." in told(nothing_feasible())
    assert "No endpoint's latency is known" in told(unknown_latency())
    blind = told(holdout())
    assert "Sent to e1 blind to carbon by score: 0.9 against 0.1 at e0" in blind
    assert "Steered, it would have gone to e0 (a)." in blind
    stale = told(stale_signal())
    assert "Left out: carbon, because signal of a is stale." in stale
    kept = told(kept_session())
    assert "Sent to e1 (c) to keep its session there: pinned by the policy." in kept
    assert "Session's turn 5, last at e1: kept, pinned by the policy." in kept
    alone = decide(REQUEST, pool(["a"], THREE), POLICY, NOW, assignment=STEERED)
    assert "Sent to e0 (a) alone." in told(alone)
    ties = decide(REQUEST, pool(["a"] * 3, THREE), POLICY, NOW, assignment=STEERED)
    assert "by draw among 3 equal endpoints" in told(ties)
    weighted = replace(POLICY, objective=Objective.WEIGHTED, weights={Term.CARBON: 2.0})
    assert "Weighted: carbon × 2" in told(decide(REQUEST, pool(["a", "b"], THREE), weighted, NOW, assignment=STEERED))
    soft = replace(POLICY, objective=Objective.SOFT_MULTIPLIER)
    assert "SoftMultiplier: score / (1 + 1 × relative intensity)" in told(
        decide(REQUEST, pool(["a", "b"], THREE), soft, NOW, assignment=STEERED)
    )


PAIR = {
    "endpoint": "d0", "region": "dirty", "prefill_endpoint": "p0", "prefill_region": "clean",
    "kv_action": "Recompute", "energy_joules": 500.0, "grams_co2e": 0.03,
}  # fmt: skip
PULL = {"endpoint": "d1", "region": "dirty", "kv_action": "PeerTransfer", "kv_source": "d0", "grams_co2e": 0.05}
DOC: dict[str, Any] = {
    "version": 1, "endpoint": "d0", "carbon_decision_enforced": False,
    "carbon_decision": {
        "policy": "green", "enforced": False, "outcome": "within-slo", "endpoint": "d0", "decided_by": "carbon",
        "candidates": [{"endpoint": "d0", "prefill_endpoint": "p0", "chosen": True, "grams_co2e": 0.03}],
    },
}  # fmt: skip


def said(**changed: Any) -> str:
    return "\n".join(sentences(recorded.read(json.dumps(DOC | changed))[0]))


def test_whole_plans_are_said_where_they_were_not_followed() -> None:
    saving = {"energy_joules": 200.0, "grams_co2e": 0.02}
    ran = PULL | {"energy_joules": 700.0}
    text = said(plan_comparison={"ran": ran, "advised": PAIR, "same": False, "modelled_saving": saving})
    assert "it would have sent it to p0 → d0 (clean → dirty) because of carbon" in text
    assert (
        "Modelled, of the whole plans: 700 J and 50 mg as it ran at d1 (dirty), pulling KV from d0; "
        "500 J and 30 mg as the policy would have had it: 200 J and 20 mg less." in text
    )
    apart = said(plan_comparison={"ran": ran, "advised": PAIR, "same": False, "modelled_saving": {}})
    assert "Their emissions are from signals of different types" in apart
    more = {"energy_joules": -200.0, "grams_co2e": 0.02}
    text = said(plan_comparison={"ran": ran, "advised": PAIR, "same": False, "modelled_saving": more})
    assert "200 J more and 20 mg less." in text
    for comparison in (None, {"ran": PAIR, "advised": PAIR, "same": True}, {"ran": None, "advised": PAIR}):
        assert "Modelled" not in said(plan_comparison=comparison)


def test_a_held_out_request_says_to_which_plan_it_would_have_gone() -> None:
    decision = DOC["carbon_decision"] | {
        "enforced": True, "arm": "holdout", "policy_would_choose": "d0", "policy_would_choose_plan": PAIR,
    }  # fmt: skip
    held_out = {"carbon_decision": decision, "carbon_decision_enforced": True}
    assert "Steered, it would have gone to p0 → d0 (clean → dirty)." in said(**held_out)
    same = {"ran": PAIR, "advised": PAIR, "same": True}
    assert "Steered, it would have gone there too." in said(**held_out, plan_comparison=same)
    decision["policy_would_choose_plan"] = PULL | {"encode_endpoints": ["e0"], "encode_regions": ["clean"]}
    assert "gone to e0 ▸ d1 (clean ▸ dirty), pulling KV from d0." in said(**held_out)


def test_what_is_said_of_classes_events_wishes_and_limits() -> None:
    fast = ServiceClass("chat", comparison=Comparison(Objective.LEXICOGRAPHIC, order=(Term.RISK, Term.CARBON)))
    policy = replace(
        POLICY,
        classes=(fast,),
        events=(DemandEvent("evening", 0.0, 2 * NOW),),
        event_comparison=Comparison(Objective.LEXICOGRAPHIC, order=(Term.RISK,)),
        largest_region_share=0.6,
        power=PowerLimit(50.0),
    )
    wishes = Asked(service_class="chat", ttft_slo_seconds=1.0, regions=frozenset({"a"}))
    standing = Standing(
        failure_rate=np.array([0.5, 0.0, 0.0, 0.0, 0.0]),
        headroom_watts=np.array([99.0, 99.0, 49.0, 99.0, 99.0]),
        throttled=np.array([0.0, 0.0, 0.0, 1.0, 0.0]),
        region_counts={"c": 9.0, "a": 1.0},
    )
    candidates = pool(["a", "b", "a", "b", "c"], THREE)
    resolved = policy_for(policy, wishes, NOW)
    decision = decide(REQUEST, candidates, resolved, NOW, assignment=STEERED, standing=standing)
    text = told(decision)
    assert "The request is of class chat." in text
    assert "The objective is that of the demand-response event evening." in text
    assert "The request asked for its own slo." in text
    assert "It does not get its own regions: not allowed by the policy." in text
    assert "at most 60% of recent requests in one region, at least 50 W of power left, nothing throttled" in text
    assert "because of risk: 0.0% against 50.0% at e0 (a)" in text
    found = recorded.read(json.dumps(decision.explanation()))[0].carbon_decision
    assert found is not None
    assert [why_lost(c, found) for c in found.candidates[2:]] == [
        "too little power left: 49 W against 50 W",
        "too little power left: throttled",
        "region has its largest share of recent requests: 90.0% against 60.0%",
    ]
    only_c = replace(policy, allowed_regions=frozenset({"c"}), power=None)
    gave = decide(REQUEST, candidates, only_c, NOW, assignment=STEERED, standing=standing)
    assert "Gave way, as nothing within it could be chosen as well: largest region share." in told(gave)


def test_advice_that_was_not_followed() -> None:
    document = {
        "version": 1,
        "request_id": "r",
        "endpoint": "e1",
        "carbon_decision": advise().explanation(),
        "carbon_decision_enforced": False,
        "scheduling": {
            "primary": "default",
            "profiles": [
                {
                    "profile": "default",
                    "picker": "max-score-picker",
                    "candidates": [{"endpoint": "e0", "score": 1.0}, {"endpoint": "e1", "score": 2.0}],
                }
            ],
        },
    }
    text = "\n".join(sentences(recorded.read(json.dumps(document))[0]))
    assert "Sent to e1 by max-score-picker: score 2 against 1 at e0." in text
    assert "Policy p only advises: it would have sent it to e0 (a) because of carbon" in text
    without = {**document, "carbon_decision": None}
    text = "\n".join(sentences(recorded.read(json.dumps(without))[0]))
    assert "No CarbonPolicy decided." in text


def test_what_was_measured_stands_beside_its_estimate() -> None:
    decision = within_slo()
    document = {
        "version": 1,
        "request_id": "r",
        "endpoint": "e1",
        "carbon_decision": decision.explanation(),
        "carbon_decision_enforced": True,
        "measured": {
            "status": 200,
            "cause": "complete",
            "ttft_seconds": 0.25,
            "broke_slo": False,
            "energy": {"joules": 812.0, "coverage": 0.9},
        },
    }
    text = "\n".join(sentences(recorded.read(json.dumps(document))[0]))
    estimated = quantities.joules(float(decision.estimates.attributed_joules[1]))
    assert f"812 J (estimated {estimated}), of which counters saw 90% of the time, promise kept" in text
    assert "TTFT 250 ms (estimated" in text
    document["measured"] = {"status": None, "cause": "disconnected", "energy": None}
    assert "energy unknown: no counter covered it" in "\n".join(sentences(recorded.read(json.dumps(document))[0]))


def test_the_winner_comes_first_then_what_kept_the_constraints() -> None:
    policy = replace(POLICY, allowed_regions=frozenset({"a", "b", "c"}))
    found = record_of(decide(REQUEST, pool([None, "c", "a", "b"], THREE), policy, NOW)).carbon_decision
    assert found is not None
    assert [c.endpoint for c in ranked(found)] == ["e2", "e3", "e1", "e0"]
    tight = replace(POLICY, ttft_slo_seconds=0.15)
    found = record_of(
        decide(REQUEST, pool(["a", "b", "c"], THREE, running=[64.0, 2.0, 2.0]), tight, NOW)
    ).carbon_decision
    assert found is not None
    assert [c.endpoint for c in ranked(found)] == ["e1", "e2", "e0"]


def test_unknown_is_written_out_and_never_zero() -> None:
    assert quantities.grams(None) == quantities.joules(NAN) == quantities.plain(None) == "unknown"
    assert quantities.with_error("unknown", 0.1) == "unknown"
    assert [quantities.grams(v) for v in (0.0, 4e-7, 0.0123, 1.5, 999.96, 1_234.0, 5e6)] == [
        "0 g",
        "0.4 µg",
        "12.3 mg",
        "1.5 g",
        "1,000 g",
        "1.23 kg",
        "5,000 kg",
    ]
    assert quantities.seconds(7_200.0) == "7,200 s"


def test_a_huge_pool_is_bounded_and_keeps_who_won_and_who_came_close() -> None:
    names = [None] * 400 + ["a"] + ["c"] * 400
    policy = replace(POLICY, allowed_regions=frozenset({"a", "c"}))
    document = decide(REQUEST, pool(names, THREE), policy, NOW).explanation()
    assert len(document["candidates"]) == MAX_CANDIDATES
    assert document["candidates_omitted"] == 801 - MAX_CANDIDATES
    assert any(c["chosen"] for c in document["candidates"])
    assert {c["region"] for c in document["candidates"]} == {"a", "c"}
    assert len(json.dumps(document)) < 400_000


# What may lie in a file


def changed(path: str, value: Any) -> str:
    document = within_slo().explanation()
    *parents, last = path.split("/")
    where: Any = document
    for part in parents:
        where = where[int(part) if part.isdecimal() else part]
    if value is ...:
        del where[last]
    else:
        where[last] = value
    return json.dumps(document)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (changed("version", 2), "version"),
        (changed("version", True), "version"),
        (changed("version", ...), "version"),
        (changed("policy", ...), "policy"),
        (changed("policy", 5), "policy"),
        (changed("candidates", ...), "candidates"),
        (changed("candidates", {}), "candidates"),
        (changed("candidates/1/ttft_seconds", "1"), "candidates[1].ttft_seconds"),
        (changed("candidates/1/ttft_seconds", math.nan), "candidates[1].ttft_seconds"),
        (changed("candidates/1/energy_joules", math.inf), "candidates[1].energy_joules"),
        (changed("candidates/0/chosen", "yes"), "candidates[0].chosen"),
        (changed("candidates/0/endpoint", None), "candidates[0].endpoint"),
        (changed("objective/order", ["carbon", 1]), "objective.order[1]"),
        (changed("objective/tolerances", {"carbon": "x"}), "objective.tolerances.carbon"),
        (changed("prompt_tokens", -1), "prompt_tokens"),
        (changed("prompt_tokens", 1.5), "prompt_tokens"),
        (changed("later", {"key": [1, math.nan]}), "later.key[1]"),
        ('{"version": 1, "carbon_decision": 5}', "carbon_decision"),
        ('{"version": 1, "carbon_decision": null, "measured": {"energy": {}}}', "measured.energy.joules"),
        ("[]", ""),
        ("null", ""),
        ("", ""),
        ("{", ""),
        ('{"version": 1e400}', "version"),
        ("9" * 10_000, ""),
        ("[" * 100_000, ""),
        ('{"a":' * 900 + "1" + "}" * 900, ""),
    ],
)
def test_a_bad_document_is_refused_with_the_key_at_fault(text: str, path: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        recorded.read(text)
    if path:
        assert refused.value.path == path
    assert len(str(refused.value)) < 400


def test_a_huge_file_is_refused_unread(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate(recorded.MAX_BYTES + 1)
    assert "larger than 16 MiB" in failed(capsys, "--file", str(tmp_path / "huge.json"))


def test_keys_of_later_writers_are_let_through_and_kept() -> None:
    text = changed("candidates/0/kv_action", "transfer")
    record, document = recorded.read(text)
    assert record.carbon_decision is not None
    assert record.carbon_decision.candidates[0].kv_action == "transfer"
    record, document = recorded.read(changed("something_new", {"a": 1}))
    assert document["something_new"] == {"a": 1}


def test_names_are_safe_for_a_terminal() -> None:
    evil = changed("candidates/1/endpoint", "x\x1b[2J[bold]\ud800")
    document = json.loads(evil)
    document["endpoint"] = document["candidates"][1]["endpoint"]
    text = "\n".join(sentences(recorded.read(json.dumps(document))[0]))
    assert "\x1b" not in text
    text.encode()


# The command


def failed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["explain", *arguments])
    assert ended.value.code == 1
    text = " ".join(capsys.readouterr().err.split())
    assert "Traceback" not in text
    return text


def ran(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["explain", *arguments])
    captured = capsys.readouterr()
    assert ended.value.code in (0, None), captured.err
    return captured.out


def test_a_file_is_shown_and_its_json_is_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "decision.json"
    file.write_text(json.dumps(within_slo().explanation()))
    text = ran(capsys, "--file", str(file))
    assert "Sent to e1 (a) because of carbon" in text
    rows = [line for line in text.splitlines() if line.startswith("│ e")]
    assert [row.split()[1] for row in rows] == ["e1", "e2", "e0"]
    assert "more carbon:" in rows[1]
    assert json.loads(ran(capsys, "--file", str(file), "--json")) == json.loads(file.read_text())


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    data = json.dumps(holdout().explanation()).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert "blind to carbon" in ran(capsys, "-f", "-")


def test_wrong_use_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "give a request id, or --file" in failed(capsys)
    assert "give a request id, or --file" in failed(capsys, "r", "--file", "x")
    assert "--file: cannot be read" in failed(capsys, "--file", str(tmp_path / "none"))
    assert "is no address such as" in failed(capsys, "r", "--picker", "file:///etc/passwd")
    assert "does not answer" in failed(capsys, "r", "--picker", "http://127.0.0.1:1")
    bad = tmp_path / "bad.json"
    bad.write_text(changed("candidates/1/ttft_seconds", "1"))
    assert "candidates[1].ttft_seconds:" in failed(capsys, "--file", str(bad))


@pytest.fixture
async def picker() -> AsyncIterator[str]:
    documents = {"r/1?": {**within_slo().explanation(), "request_id": "r/1?"}}
    server = AdminServer(
        registry=CollectorRegistry(),
        ready=lambda: None,
        decision=documents.get,
        decisions=lambda limit: list(documents.values())[:limit],
        decisions_kept=1_000,
        state=dict,
    )
    port = await server.start("127.0.0.1", 0)
    yield f"http://127.0.0.1:{port}/"
    await server.stop()


async def test_a_running_picker_is_asked_and_no_proxy(picker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    record, _ = recorded.read(await asyncio.to_thread(asked, picker, "r/1?"))
    assert (record.request_id, record.endpoint) == ("r/1?", "e1")
    with pytest.raises(DecisionNotKeptError, match=r"gone: no such decision.*only the newest 1000 are"):
        await asyncio.to_thread(asked, picker, "gone")
    with pytest.raises(PickerUnreachableError, match="answered 404; is this a picker's metrics port"):
        await asyncio.to_thread(asked, f"{picker}elsewhere", "r")


def test_a_picker_that_hangs_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(PickerUnreachableError, match="does not answer"):
            asked(f"http://127.0.0.1:{port}", "r", 0.1)
