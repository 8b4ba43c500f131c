"""A conversation with OpenAI's client whose turns are traced: what the client learned, and what the spans say."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import openai
from e2e.stack import write_regions
from tests.support.otlp import Collector, Span

from heliotrope_sim.demo.fleet import PickerPorts

DECISION = "gateway.request_orchestration"
REQUEST = "gateway.request"
CACHED_INPUT = "gen_ai.usage.cache_read.input_tokens"


@dataclass(frozen=True)
class Told:
    """One turn."""

    prompt_tokens: int
    cached_tokens: int
    """By the engine's own word in `usage`."""
    decision: Mapping[str, Any]
    """Attributes of the decision's span."""
    request: Mapping[str, Any]
    """Attributes of the request's span."""

    @property
    def action(self) -> str:
        """The KV action."""
        return str(self.decision["heliotrope.kv.action"])

    @property
    def endpoint(self) -> str:
        """Where it went."""
        return str(self.decision["heliotrope.endpoint"])

    @property
    def expected_tokens(self) -> float:
        """Cached tokens that the decision counted on."""
        return float(self.decision["heliotrope.cached_tokens"])

    @property
    def avoided_joules(self) -> float:
        """What the prefill would have drawn more."""
        return float(self.decision["heliotrope.avoided_recompute_joules"])

    @property
    def avoided_seconds(self) -> float:
        """What the prefill would have taken longer."""
        return float(self.decision["heliotrope.avoided_recompute_seconds"])


@dataclass
class Chat:
    """A client that resends its history; `name` is its `prompt_cache_key`."""

    url: str
    traces: Collector
    model: str
    name: str
    system: str
    extra_body: Mapping[str, Any] | None = None
    messages: list[dict[str, str]] = field(default_factory=list)

    async def turn(self, question: str) -> Told:
        """Ask once, and wait for the spans."""
        trace_id = uuid4().hex
        if not self.messages:
            self.messages.append({"role": "system", "content": self.system})
        self.messages.append({"role": "user", "content": question})
        async with openai.AsyncOpenAI(
            base_url=f"{self.url}/v1", api_key="unused", max_retries=0, timeout=300
        ) as client:
            answer = await client.chat.completions.create(
                model=self.model,
                messages=self.messages,  # type: ignore[arg-type]
                max_tokens=12,
                prompt_cache_key=self.name,
                extra_headers={"traceparent": f"00-{trace_id}-00f067aa0ba902b7-01"},
                extra_body=self.extra_body,
            )
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        self.messages.append({"role": "assistant", "content": answer.choices[0].message.content or ""})
        spans = await _spans(self.traces, trace_id)
        return Told(
            prompt_tokens=answer.usage.prompt_tokens,
            cached_tokens=answer.usage.prompt_tokens_details.cached_tokens or 0,
            decision=spans[DECISION].attributes,
            request=spans[REQUEST].attributes,
        )


async def _spans(traces: Collector, trace_id: str) -> dict[str, Span]:
    def found() -> dict[str, Span]:
        return {span.name: span for span in traces.spans if span.trace_id == trace_id}

    await asyncio.to_thread(traces.wait, lambda: {DECISION, REQUEST} <= found().keys(), f"spans of {trace_id}", 40.0)
    return found()


async def intensities_are(ports: PickerPorts, resources: Path, wanted: Mapping[str, float]) -> None:
    """Change the grids and wait until the picker reads it."""
    write_regions(resources, wanted)
    async with asyncio.timeout(20.0), httpx.AsyncClient(trust_env=False) as client:
        while True:
            state = (await client.get(f"http://127.0.0.1:{ports.admin}/debug/state")).json()
            if {r["name"]: r["intensity_g_per_kwh"] for r in state["regions"]} == wanted:
                return
            await asyncio.sleep(0.05)
