"""The ledger of a picker that serves, is killed, and comes back."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from e2e.stack import MODEL, Stack, running_stack
from tests.support.metering import metering_has_begun

from heliotrope_epp.ledger.journal import segments
from heliotrope_epp.ledger.read import opened
from heliotrope_sim.demo.fleet import start_picker

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

REQUESTS = 20


async def heliotrope(*arguments: str) -> Any:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "heliotrope_cli.main", *arguments, "--json", stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return json.loads(out)


async def ask(stack: Stack, numbers: range) -> None:
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        for number in numbers:
            body = {
                "model": MODEL,
                "messages": [{"role": "user", "content": f"{number} is a number, and this is about it."}],
                "max_tokens": 8,
            }
            headers = {"x-llm-d-inference-fairness-id": f"tenant-{number % 2}"}
            answer = await client.post(f"{stack.url}/v1/chat/completions", json=body, headers=headers)
            assert answer.status_code == 200, answer.text


async def written(stack: Stack) -> None:
    """Wait until everything that is booked by now is on the disk: the writer has begun and ended a batch since."""
    for _ in range(2):
        before = await stack.metric("heliotrope_ledger_rows_written_total")
        async with asyncio.timeout(20):
            while await stack.metric("heliotrope_ledger_rows_written_total") == before:
                await asyncio.sleep(0.05)


def totals(ledger: Path) -> tuple[float, int]:
    """Joules of all lines, and requests."""
    with opened(ledger) as connection:
        millijoules, requests = connection.sql("SELECT sum(millijoules), sum(requests) FROM ledger").fetchall()[0]
    return int(millijoules or 0) / 1_000, int(requests or 0)


async def test_the_ledger_adds_up_survives_a_kill_and_settles(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"  # where `start_picker` has it written
    async with running_stack(tmp_path, {"clean": 20.0, "dirty": 400.0}) as stack:
        await metering_has_begun(stack.debug_url)
        await ask(stack, range(REQUESTS))
        async with asyncio.timeout(30):
            while await stack.metric("heliotrope_energy_joules_total") == 0.0 or totals(ledger)[1] < REQUESTS:
                await asyncio.sleep(0.2)

        # All lines together are what the counters counted, read while they count on.
        before = await stack.metric("heliotrope_metered_energy_joules_total")
        await written(stack)
        joules, requests = totals(ledger)
        after = await stack.metric("heliotrope_metered_energy_joules_total")
        assert before <= joules + 1e-6
        assert joules <= after + 1e-6
        assert requests == REQUESTS

        await stack.picker.kill()
        left_joules, left_requests = totals(ledger)
        assert left_joules >= joules
        assert left_requests == REQUESTS
        assert segments(ledger)  # nobody closed it

        again, stack.ports = await start_picker(tmp_path, stack.resources)
        try:
            async with asyncio.timeout(30):
                while await stack.metric("heliotrope_ledger_compacted_segments_total") == 0.0:
                    await asyncio.sleep(0.1)
            assert totals(ledger)[1] == REQUESTS
        finally:
            await again.stop()
        assert not segments(ledger)  # closed and compacted on the way out

    by_tenant = await heliotrope("ledger", str(ledger), "--by", "tenant", "--by", "line")
    requests_of = {
        row["tenant"]: row["requests"] for row in by_tenant if row["line"] == "request" and row["signal_type"]
    }
    assert requests_of == {"tenant-0": REQUESTS // 2, "tenant-1": REQUESTS // 2}
    settled = await heliotrope("settle", str(ledger), "--profiles", str(stack.resources))
    assert settled["total"]["unpriced_joules"] == 0.0
    assert settled["total"]["change"] == pytest.approx(0.0, abs=1e-6)
