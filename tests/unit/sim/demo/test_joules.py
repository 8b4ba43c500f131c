"""Estimated, measured and true joules come together per request, and unknown stays unknown."""

import math
from typing import Any

import pytest

from heliotrope_sim.demo.client import RequestResult
from heliotrope_sim.demo.joules import joules_of_responses, relative_errors, request_joules

NAN = float("nan")


def result(request_id: str, status: int = 200) -> RequestResult:
    return RequestResult(
        request_id, 0.0, False, status, 10, None, None, 1.0, engine="e-0", response_id=f"chatcmpl-{request_id}"
    )


def decision(request_id: str, estimated: float | None, joules: float | None) -> dict[str, Any]:
    rows = [{"chosen": False, "attributed_joules": 1.0}, {"chosen": True, "attributed_joules": estimated}]
    measured = {"status": 200, "energy": None if joules is None else {"joules": joules}}
    return {"request_id": request_id, "carbon_decision": {"candidates": rows}, "measured": measured}


def test_each_answered_request_has_its_three_numbers() -> None:
    rows = request_joules(
        [result("a"), result("b"), result("failed", 500), result("undecided")],
        {"e-0": "norway"},
        [decision("a", 90.0, 100.0), decision("b", None, None)],
        {"chatcmpl-a": 110.0},
    )
    assert [row.request_id for row in rows] == ["a", "b", "undecided"]
    assert (rows[0].region, rows[0].estimated, rows[0].attributed, rows[0].true) == ("norway", 90.0, 100.0, 110.0)
    assert all(math.isnan(x) for row in rows[1:] for x in (row.estimated, row.attributed, row.true))


def test_errors_are_relative_to_the_second_and_skip_what_is_unknown() -> None:
    errors = relative_errors([(90.0, 100.0), (120.0, 100.0), (NAN, 100.0), (100.0, NAN), (5.0, 0.0)])
    assert errors["requests"] == 2
    assert errors["median"] == pytest.approx(0.15)
    assert errors["mean"] == pytest.approx(0.15)
    assert errors["total"] == pytest.approx(0.05)
    assert relative_errors([(NAN, 1.0)]) == {"requests": 0, "median": None, "mean": None, "total": None}


def test_a_response_has_the_joules_of_all_engines_that_worked_for_it() -> None:
    records = [("chatcmpl-a", 5.0), ("chatcmpl-a-enc-0", 1.0), ("chatcmpl-a-enc-12", 2.0), ("chatcmpl-a", 7.0)]
    records.append(("chatcmpl-b-enc-x", 3.0))
    totals = joules_of_responses([{"response_id": name, "joules": joules} for name, joules in records])
    assert totals == {"chatcmpl-a": 15.0, "chatcmpl-b-enc-x": 3.0}
