"""The picker's page is read tolerantly and bounded; garbage is told from silence."""

import json
from typing import Any

import pytest

from heliotrope.errors import BadAnswerError
from heliotrope_operator.planning import page
from heliotrope_operator.planning.pickers import addresses_of
from heliotrope_operator.planning.tails import Buckets

LINE = {"model": "m", "requests_total": 3, "prompt_tokens_total": 30, "output_tokens_total": 5, "held": 1, "new": "x"}
GOOD: dict[str, Any] = {
    "schema": 1,
    "pool": {"namespace": "ns", "name": "p"},
    "instance": "i",
    "time_unix_s": 10.0,
    "started_unix_s": 1.0,
    "models": [LINE],
    "endpoints": [{"name": "e", "running": 2.0, "waiting": None, "kv_usage": float("nan"), "asleep": True}],
    "of_a_newer_picker": 1,
}


def read(document: Any) -> page.PickerPage:
    return page.read(json.dumps(document).encode(), namespace="ns", pool="p")


def test_a_page_is_read_and_what_is_unknown_stays_so() -> None:
    found = read(GOOD)
    assert found.models["m"].held == 1.0
    assert found.engines["e"] == page.EngineLine(asleep=True, running=2.0)
    assert read({name: value for name, value in GOOD.items() if name != "endpoints"}).engines == {}


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"pool": None},
        {"pool": {"namespace": "ns", "name": "other"}},
        {"models": [LINE | {"requests_total": -1}]},
        {"models": [LINE | {"held": float("nan")}]},
        {"models": [LINE | {"held": True}]},
        {"models": "m"},
        {"models": [{}]},
        {"time_unix_s": None},
        {"models": [LINE] * (page.MAX_LINES + 1)},
    ],
)
def test_garbage_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(BadAnswerError):
        read(GOOD | change)


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{", b"\xff"])
def test_what_is_no_page_is_refused(body: bytes) -> None:
    with pytest.raises(BadAnswerError):
        page.read(body, namespace="ns", pool="p")


def test_addresses_are_those_of_ready_endpoints_at_the_named_port() -> None:
    ports = [{"name": "grpc", "port": 9002}, {"name": "http-metrics", "port": 9090}]
    endpoints = [
        {"addresses": ["10.0.0.1"], "conditions": {"ready": True}},
        {"addresses": ["10.0.0.2"], "conditions": {"ready": False}},
        {"addresses": ["fd00::1"]},
        {"addresses": []},
    ]
    assert addresses_of({"ports": ports, "endpoints": endpoints}) == ["10.0.0.1:9090", "[fd00::1]:9090"]
    assert addresses_of({"ports": ports[:1], "endpoints": endpoints}) == []
    assert addresses_of({"ports": [{"port": 1}], "endpoints": endpoints[:1]}) == ["10.0.0.1:1"]
    assert addresses_of({}) == []


FIRST = {"upper_seconds": [0.1, 1.0], "cumulative": [3, 5, 6]}


def test_histograms_of_engines_are_read() -> None:
    found = read(GOOD | {"endpoints": [{"name": "e", "first_token": FIRST, "output_token": None}]}).engines["e"]
    assert found.first_token == Buckets((0.1, 1.0), (3.0, 5.0, 6.0))
    assert found.output_token is None


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        {},
        FIRST | {"upper_seconds": [1.0, 0.1]},
        FIRST | {"cumulative": [3, 2, 6]},
        FIRST | {"cumulative": [3, 5]},
        FIRST | {"cumulative": [3, None, 6]},
        FIRST | {"upper_seconds": []},
        {"upper_seconds": [float(n) for n in range(65)], "cumulative": [0] * 66},
    ],
)
def test_histograms_that_make_no_sense_are_unknown(wrong: Any) -> None:
    assert read(GOOD | {"endpoints": [{"name": "e", "first_token": wrong}]}).engines["e"].first_token is None
