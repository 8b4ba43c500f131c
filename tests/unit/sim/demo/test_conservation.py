"""The picker's books against the engines' counters."""

from typing import Any

from heliotrope_sim.demo.conservation import conservation

BEFORE = {"norway-0": 1_000, "spain-0": 2_000}
AFTER = {"norway-0": 9_500, "spain-0": 4_100}


def endpoint(name: str, opened: int | None, closed: int | None, requests: int, idle: int) -> dict[str, Any]:
    lines = {"requests": requests, "others": 0, "idle": idle, "unattributed": 0}
    return {"endpoint": f"demo/{name}", "energy": {"millijoules": {"opened_at": opened, "closed_at": closed, **lines}}}


def test_books_that_add_up() -> None:
    state = {
        "endpoints": [endpoint("norway-0", 1_100, 9_100, 7_000, 1_000), endpoint("spain-0", 2_000, 4_100, 0, 2_100)]
    }

    books = conservation(state, BEFORE, AFTER)

    assert books is not None
    assert (books.counted, books.difference, books.outside, books.readings_hold) == (10_100, 0, 500, True)
    assert books.lines == {"requests": 7_000, "others": 0, "idle": 3_100, "unattributed": 0}


def test_a_millijoule_that_is_lost_or_read_from_nowhere_shows() -> None:
    lost = {
        "endpoints": [endpoint("norway-0", 1_100, 9_100, 6_999, 1_000), endpoint("spain-0", 2_000, 4_100, 0, 2_100)]
    }
    beyond = {"endpoints": [endpoint("norway-0", 999, 9_501, 8_502, 0), endpoint("spain-0", 2_000, 4_100, 0, 2_100)]}

    found = conservation(lost, BEFORE, AFTER)
    assert found is not None
    assert found.difference == 1
    found = conservation(beyond, BEFORE, AFTER)
    assert found is not None
    assert not found.readings_hold


def test_without_books_of_every_engine_there_is_no_statement() -> None:
    silent = {"endpoint": "demo/spain-0", "energy": None}
    assert conservation({"endpoints": [endpoint("norway-0", 0, 1, 1, 0), silent]}, BEFORE, AFTER) is None
    unsettled = endpoint("spain-0", 2_000, None, 0, 0)
    assert conservation({"endpoints": [endpoint("norway-0", 0, 1, 1, 0), unsettled]}, BEFORE, AFTER) is None
