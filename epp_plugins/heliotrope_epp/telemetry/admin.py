"""The admin port: metrics, liveness, readiness and the explanations of recent decisions."""

from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

MAX_DECISIONS = 1_000


class AdminServer:
    """Plain HTTP on its own port; it shows request ids, endpoints and numbers, never prompts."""

    def __init__(
        self,
        *,
        registry: CollectorRegistry,
        ready: Callable[[], str | None],
        decision: Callable[[str], dict[str, Any] | None],
        decisions: Callable[[int], list[dict[str, Any]]],
        decisions_kept: int,
        state: Callable[[], dict[str, Any]],
        pages: Mapping[str, Callable[[], bytes]] | None = None,
    ) -> None:
        """`ready` returns None, or the reason why not; `pages` are further JSON documents by path."""
        self._registry = registry
        self._ready = ready
        self._decision = decision
        self._decisions = decisions
        self._decisions_kept = decisions_kept
        self._state = state
        self._pages = {} if pages is None else dict(pages)
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port (0: chosen by the system).

        Raises:
            OSError: if the port cannot be bound.
        """
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/debug/state", self._debug_state)
        app.router.add_get("/debug/decisions", self._debug_decisions)
        app.router.add_get("/debug/decisions/{request_id}", self._debug_decision)
        for path in self._pages:
            app.router.add_get(path, self._page)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Close the port."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        reason = self._ready()
        return web.Response(text="ok\n") if reason is None else web.Response(status=503, text=f"{reason}\n")

    async def _debug_state(self, _: web.Request) -> web.Response:
        return web.json_response(self._state())

    async def _debug_decisions(self, request: web.Request) -> web.Response:
        text = request.query.get("limit", "100")
        if not text.isdecimal() or len(text) > len(str(MAX_DECISIONS)) or int(text) > MAX_DECISIONS:
            return web.json_response({"error": f"limit must be 0 to {MAX_DECISIONS}"}, status=400)
        return web.json_response(self._decisions(int(text)))

    async def _debug_decision(self, request: web.Request) -> web.Response:
        found = self._decision(request.match_info["request_id"])
        if found is None:
            kept = f"no such decision, or it is no longer kept: only the newest {self._decisions_kept} are"
            return web.json_response({"error": kept}, status=404)
        return web.json_response(found)

    async def _page(self, request: web.Request) -> web.Response:
        return web.Response(body=self._pages[request.path](), content_type="application/json")
