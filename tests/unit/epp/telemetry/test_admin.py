from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter

from heliotrope_epp.telemetry.admin import AdminServer

DECISIONS = {f"r-{i}": {"request_id": f"r-{i}"} for i in range(5)}


class Served:
    """An admin server whose readiness a test sets."""

    def __init__(self) -> None:
        self.not_ready: str | None = "resources have not been read yet"
        self.url = ""


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    registry = CollectorRegistry()
    Counter("heliotrope_test", "For the test.", registry=registry).inc()
    state = Served()
    server = AdminServer(
        registry=registry,
        ready=lambda: state.not_ready,
        decision=DECISIONS.get,
        decisions=lambda limit: list(DECISIONS.values())[:limit],
        decisions_kept=5,
        state=lambda: {"generation": 3},
    )
    port = await server.start("127.0.0.1", 0)
    state.url = f"http://127.0.0.1:{port}"
    yield state
    await server.stop()


async def get(served: Served, path: str) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.get(f"{served.url}{path}") as response:
        if response.content_type == "application/json":
            return response.status, await response.json()
        return response.status, await response.text()


async def test_liveness_readiness_and_metrics(served: Served) -> None:
    assert await get(served, "/healthz") == (200, "ok\n")
    assert await get(served, "/readyz") == (503, "resources have not been read yet\n")
    served.not_ready = None
    assert await get(served, "/readyz") == (200, "ok\n")
    status, page = await get(served, "/metrics")
    assert status == 200
    assert "heliotrope_test_total 1.0" in page


async def test_decisions_and_state(served: Served) -> None:
    assert await get(served, "/debug/state") == (200, {"generation": 3})
    assert await get(served, "/debug/decisions/r-2") == (200, {"request_id": "r-2"})
    status, body = await get(served, "/debug/decisions/unknown")
    assert status == 404
    assert body["error"] == "no such decision, or it is no longer kept: only the newest 5 are"
    status, body = await get(served, "/debug/decisions?limit=2")
    assert (status, len(body)) == (200, 2)


@pytest.mark.parametrize("limit", ["-1", "many", "1001", "", "9" * 5000])
async def test_a_bad_limit_is_a_clear_400(served: Served, limit: str) -> None:
    status, body = await get(served, f"/debug/decisions?limit={limit}")
    assert status == 400
    assert body["error"] == "limit must be 0 to 1000"


async def test_further_pages_are_json() -> None:
    server = AdminServer(
        registry=CollectorRegistry(),
        ready=lambda: None,
        decision=DECISIONS.get,
        decisions=lambda limit: [],
        decisions_kept=5,
        state=dict,
        pages={"/v1/state": lambda: b'{"version": 1}'},
    )
    state = Served()
    state.url = f"http://127.0.0.1:{await server.start('127.0.0.1', 0)}"
    try:
        assert await get(state, "/v1/state") == (200, {"version": 1})
    finally:
        await server.stop()
