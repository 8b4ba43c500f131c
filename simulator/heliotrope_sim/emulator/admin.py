"""What only an emulator or a development server offers: state, clock, sleep, faults."""

import asyncio
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field

from heliotrope_sim.emulator.driver import EngineDriver
from heliotrope_sim.emulator.errors import ApiError, bad_request
from heliotrope_sim.emulator.faults import Fault, FaultInjector
from heliotrope_sim.emulator.kv_metrics import tier_blocks
from heliotrope_sim.emulator.protocol import parse
from heliotrope_sim.engine import Encoder, SleepLevel
from heliotrope_sim.engine.fixed_point import joules, seconds


class ClockRequest(BaseModel):
    """POST /emulator/v1/clock."""

    model_config = ConfigDict(extra="forbid")

    sm_clock_mhz: int = Field(gt=0)


class AdminApi:
    """vLLM's routes about sleep and KV events, and /emulator/v1."""

    def __init__(self, driver: EngineDriver, faults: FaultInjector) -> None:
        self._driver = driver
        self._faults = faults

    def routes(self) -> list[web.RouteDef]:
        """What to serve."""
        sleep = [
            web.post("/sleep", self.sleep),
            web.post("/wake_up", self.wake_up),
            web.get("/is_sleeping", self.is_sleeping),
        ]
        return [
            *(sleep if self._driver.config.sleep_mode else ()),
            web.get("/kv_event_sources", self.kv_event_sources),
            web.get("/emulator/v1/state", self.state),
            web.post("/emulator/v1/clock", self.set_clock),
            web.get("/emulator/v1/requests", self.requests),
            web.get("/emulator/v1/requests/{response_id}", self.request),
            web.get("/emulator/v1/faults", self.list_faults),
            web.post("/emulator/v1/faults", self.add_fault),
            web.delete("/emulator/v1/faults", self.clear_faults),
        ]

    async def sleep(self, request: web.Request) -> web.Response:
        """Drop what is in flight and sleep at `level` 0, 1 (default) or 2."""
        text = request.query.get("level", "1")
        if text not in ("0", "1", "2"):
            raise bad_request(f"level must be 0, 1 or 2, got {text!r}", "query.level")
        level = SleepLevel(int(text))
        self._driver.sleep(level)
        return web.json_response({"status": "sleeping", "level": int(level)})

    async def wake_up(self, request: web.Request) -> web.Response:
        """Serve again, after the time that waking takes."""
        config = self._driver.config
        if self._driver.engine.sleep_level is not None:
            await asyncio.sleep(config.wake_seconds / config.time_scale)
        self._driver.wake_up()
        return web.json_response({"status": "awake", "tags": request.query.getall("tags", []) or None})

    async def is_sleeping(self, _request: web.Request) -> web.Response:
        """Whether it sleeps at any level."""
        return web.json_response({"is_sleeping": self._driver.engine.sleep_level is not None})

    async def kv_event_sources(self, _request: web.Request) -> web.Response:
        """Where KV events are published, by data-parallel rank."""
        config, events = self._driver.config.kv_events, self._driver.events
        if config is None or events is None:
            return web.json_response({})
        return web.json_response({str(config.data_parallel_rank): events.source()})

    async def state(self, _request: web.Request) -> web.Response:
        """Everything about the engine, in engine time."""
        return web.json_response(self._state())

    async def set_clock(self, request: web.Request) -> web.Response:
        """Set the SM clock of all its accelerators; the answer says what came of it."""
        body = parse(ClockRequest, request.content_type, await request.read())
        if self._driver.gpus is not None:
            raise ApiError(
                HTTPStatus.CONFLICT,
                f"The clock is that of {', '.join(self._driver.gpus.uuids)}; lock it in the driver.",
            )
        return web.json_response({"sm_clock_mhz": self._driver.set_clock(body.sm_clock_mhz)})

    async def requests(self, _request: web.Request) -> web.Response:
        """The last finished requests with their true times and joules, oldest first, and how many are forgotten."""
        driver = self._driver
        known = [asdict(r) for r in driver.finished.values()]
        return web.json_response({"requests": known, "forgotten": driver.forgotten})

    async def request(self, request: web.Request) -> web.Response:
        """One finished request by the id of its response."""
        found = self._driver.finished.get(request.match_info["response_id"])
        if found is None:
            raise ApiError(HTTPStatus.NOT_FOUND, "No finished request of this id is remembered.")
        return web.json_response(asdict(found))

    async def list_faults(self, _request: web.Request) -> web.Response:
        """The faults in force."""
        return web.json_response({"faults": [f.model_dump(mode="json") for f in self._faults.listing()]})

    async def add_fault(self, request: web.Request) -> web.Response:
        """Put a fault in force."""
        self._faults.add(parse(Fault, request.content_type, await request.read()))
        return await self.list_faults(request)

    async def clear_faults(self, request: web.Request) -> web.Response:
        """End all faults."""
        self._faults.clear()
        return await self.list_faults(request)

    def _state(self) -> dict[str, Any]:
        driver, engine = self._driver, self._driver.engine
        now_ns, did = driver.clock.now_ns(), engine.counters
        meter_ns = driver.meter_ns(now_ns)
        busy, idle, asleep = engine.energy.split(meter_ns)
        return {
            "name": driver.config.name,
            "region": driver.config.region,
            "role": driver.config.role,
            "model": driver.served_model,
            "profile": engine.model.name,
            "accelerator": engine.model.accelerator,
            "tensor_parallel": engine.model.tensor_parallel,
            "time_scale": driver.config.time_scale,
            "engine_seconds": seconds(now_ns),
            "lateness_seconds": driver.metrics.lateness_seconds,
            "sm_clock_mhz": engine.model.clock_mhz,
            "gpus": None if driver.gpus is None else list(driver.gpus.uuids),
            "sleep_level": engine.sleep_level,
            "running": engine.num_running,
            "waiting": engine.num_waiting,
            "loading": engine.num_loading,
            "held": engine.num_held,
            "queued_tokens": engine.queued_tokens,
            "kv_tokens": engine.kv_tokens,
            "kv_blocks": {
                "total": engine.kv.capacity_blocks,
                "used": engine.kv.used_blocks,
                "cached": engine.kv.cached_blocks,
            },
            "encoder": _encoder_state(engine.encoder),
            "tier_blocks": tier_blocks(engine),
            "kv_events": None if driver.events is None else driver.events.state(),
            "counters": {
                "prompt_tokens": driver.metrics.prompt_tokens,
                "generation_tokens": driver.metrics.generation_tokens,
                "prefix_queries": did.prefix_queries,
                "prefix_hits": did.prefix_hits,
                "preemptions": did.preemptions,
                "prefill_seconds": seconds(did.prefill_ns),
                "decode_seconds": seconds(did.decode_ns),
            },
            "joules": {
                "total": joules(busy + idle + asleep),
                "busy": joules(busy),
                "idle": joules(idle),
                "asleep": joules(asleep),
                "host": joules(engine.energy.host_picojoules(now_ns)),
                "transfers": joules(engine.transfers.picojoules(now_ns)),
            },
            "watts": engine.energy.watts(meter_ns),
        }


def _encoder_state(encoder: Encoder | None) -> dict[str, Any] | None:
    if encoder is None:
        return None
    return {
        "cached_images": len(encoder.cache),
        "cached_tokens": encoder.cache.used_tokens,
        "encoded_images": encoder.encoded_images,
        "encoded_tokens": encoder.encoded_tokens,
        "encode_seconds": seconds(encoder.encoded_ns),
        "loaded_images": encoder.loaded_images,
    }
