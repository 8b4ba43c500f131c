"""The hub: shares an administrator's plan out over members, and publishes to each its ceilings over TLS."""

import asyncio
import hmac
import json
import logging
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import uvloop
import yaml
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from heliotrope.errors import InvalidInputError
from heliotrope.scale.ceilings import MAX_BYTES
from heliotrope.scale.hub import HubPlan, Summary, document_of, parse_plan, parse_summary, shared_out, version_of
from heliotrope_operator.hub.settings import HubSettings
from heliotrope_operator.stopping import stop_on_signals
from heliotrope_operator.times import format_unix

_log = logging.getLogger(__name__)

ISSUES = 4
"""A document is issued anew so many times within its validity; between that, an ETag that fits saves sending it."""
PLAN_BYTES = 4 * 1024 * 1024


def run(settings: HubSettings) -> int:
    """Serve until SIGTERM or SIGINT.

    Raises:
        InvalidInputError: if plan or certificate cannot be used at start; later, the last good ones stay in use.
        OSError: if the port is taken.
    """
    return uvloop.run(serve(settings))


async def serve(settings: HubSettings, stop: asyncio.Event | None = None) -> int:
    """The same within a running loop; `stop` ends it as a signal does."""
    stop = stop or asyncio.Event()
    stop_on_signals(stop)
    registry = CollectorRegistry()
    files = HubFiles(settings, registry)
    await asyncio.to_thread(files.load)
    hub = Hub(files, settings, registry, time.time)
    metrics, thread = start_http_server(settings.metrics_port, settings.host, registry=registry)
    runner = web.AppRunner(hub.application(), access_log=None, handle_signals=False, shutdown_timeout=3.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, settings.host, settings.port, ssl_context=files.tls)
        await site.start()
        port = runner.addresses[0][1]
        _log.info("hub on port %d, metrics on port %d of %s", port, metrics.server_port, settings.host)
        if settings.tokens is None:
            _log.warning("no --tokens: whoever reaches the port may read ceilings and tell needs")
        watching = asyncio.create_task(files.watch())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({watching, stopping}, return_when=asyncio.FIRST_COMPLETED)
        failed = watching.done()
        watching.cancel()
        stopping.cancel()
        await asyncio.gather(watching, stopping, return_exceptions=True)
        return 1 if failed else 0
    finally:
        await runner.cleanup()
        metrics.shutdown()
        thread.join()
        metrics.server_close()


class HubFiles:
    """Plan, certificate and tokens, as the files last said something usable."""

    def __init__(self, settings: HubSettings, registry: CollectorRegistry) -> None:
        self._settings = settings
        self._stamps: dict[Path, object] = {}
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        """New handshakes use the certificate that was loaded last."""
        self.tls.minimum_version = ssl.TLSVersion.TLSv1_2
        self.plan: HubPlan
        self.tokens: dict[str, bytes] | None = None
        """Of members, by name; None: nobody is asked for one."""
        self._usable = Gauge(
            "heliotrope_hub_file_usable",
            "1 if the file as it is now is in use, 0 if an older content is, as the new one is wrong.",
            ["file"],
            registry=registry,
        )

    def load(self) -> None:
        """Read everything.

        Raises:
            InvalidInputError: naming the flag of a file that cannot be used.
        """
        self._load_plan()
        self._load_certificate()
        self._load_tokens()
        for name in ("plan", "certificate", "tokens"):
            self._usable.labels(name).set(1)

    async def watch(self) -> None:
        """Take over changed files until cancelled; those that cannot be used are told and left aside."""
        while True:
            await asyncio.sleep(self._settings.refresh_s)
            for name, load in (
                ("plan", self._load_plan),
                ("certificate", self._load_certificate),
                ("tokens", self._load_tokens),
            ):
                try:
                    changed = await asyncio.to_thread(load)
                except InvalidInputError as error:
                    self._usable.labels(name).set(0)
                    _log.warning("the new %s is not used: %s", name, error)
                else:
                    if changed:
                        self._usable.labels(name).set(1)
                        _log.info("%s read again", name)

    def _load_plan(self) -> bool:
        path = self._settings.plan
        stamp = _stamp(path, "--plan")
        if self._stamps.get(path) == stamp:
            return False
        self._stamps[path] = stamp
        try:
            with path.open("rb") as file:
                text = file.read(PLAN_BYTES + 1)
            if len(text) > PLAN_BYTES:
                raise InvalidInputError("--plan", f"{path} is larger than {PLAN_BYTES} bytes")
            document = yaml.load(text, yaml.CSafeLoader)
        except (OSError, yaml.YAMLError, RecursionError) as error:
            raise InvalidInputError("--plan", f"cannot read {path}: {error}") from error
        try:
            self.plan = parse_plan(document)
        except InvalidInputError as error:
            raise InvalidInputError("--plan", f"{path}: {error}") from error
        return True

    def _load_certificate(self) -> bool:
        certificate, key = self._settings.certificate, self._settings.key
        stamp = (_stamp(certificate, "--tls-cert"), _stamp(key, "--tls-key"))
        if self._stamps.get(certificate) == stamp:
            return False
        self._stamps[certificate] = stamp
        try:
            # Checked apart, as a pair that does not fit would leave the context in use without a key.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
            self.tls.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            raise InvalidInputError("--tls-cert", f"cannot use {certificate} with {key}: {error}") from error
        return True

    def _load_tokens(self) -> bool:
        folder = self._settings.tokens
        if folder is None:
            return False
        tokens: dict[str, bytes] = {}
        for member in self.plan.members:
            try:
                token = (folder / member.name).read_bytes().strip()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise InvalidInputError("--tokens", f"cannot read that of {member.name}: {error}") from error
            if not token:
                raise InvalidInputError("--tokens", f"the file of {member.name} is empty")
            tokens[member.name] = token
        changed, self.tokens = tokens != self.tokens, tokens
        return changed


class Hub:
    """Answers members. Their needs are kept in memory: they tell them again with each poll."""

    def __init__(
        self, files: HubFiles, settings: HubSettings, registry: CollectorRegistry, unix_clock: Callable[[], float]
    ) -> None:
        self._files = files
        self._valid_s = settings.valid_s
        self._unix_clock = unix_clock
        self._told: dict[str, tuple[float, Summary]] = {}
        """When, and what; at most one of each member of the plan."""
        self._requests = Counter(
            "heliotrope_hub_requests", "Requests of members.", ["member", "request", "code"], registry=registry
        )
        self._heard = Gauge(
            "heliotrope_hub_member_last_heard_timestamp_seconds",
            "When a member last told its needs.",
            ["member"],
            registry=registry,
        )

    def application(self) -> web.Application:
        """The HTTP server's application."""
        app = web.Application(client_max_size=MAX_BYTES)
        app.router.add_get("/v1/ceilings/{member}", self._ceilings)
        app.router.add_put("/v1/summaries/{member}", self._summary)
        app.router.add_get("/healthz", self._healthz)
        return app

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _ceilings(self, request: web.Request) -> web.Response:
        response = self._published(request)
        self._count(request, "ceilings", response.status)
        return response

    async def _summary(self, request: web.Request) -> web.Response:
        response = await self._heard_of(request)
        self._count(request, "summary", response.status)
        return response

    def _published(self, request: web.Request) -> web.Response:
        member = request.match_info["member"]
        refusal = self._refusal(request, member)
        if refusal is not None:
            return refusal
        now = self._unix_clock()
        lately = {name: told for name, (at, told) in self._told.items() if now - at < self._valid_s}
        ceilings = shared_out(self._files.plan, lately, member)
        every_s = self._valid_s / ISSUES
        issued = now // every_s * every_s
        etag = f"{version_of(ceilings)}-{issued:.0f}"
        headers = {"ETag": f'"{etag}"', "Cache-Control": "private, no-cache"}
        if request.if_none_match is not None and any(each.value == etag for each in request.if_none_match):
            return web.Response(status=304, headers=headers)
        document = document_of(ceilings, format_unix(issued), format_unix(issued + self._valid_s))
        return web.json_response(document, headers=headers)

    async def _heard_of(self, request: web.Request) -> web.Response:
        member = request.match_info["member"]
        refusal = self._refusal(request, member)
        if refusal is not None:
            return refusal
        try:
            summary = parse_summary(await request.read())
        except InvalidInputError as error:
            return _problem(400, str(error))
        now = self._unix_clock()
        known = {each.name for each in self._files.plan.members}
        self._told = {name: told for name, told in self._told.items() if name in known} | {member: (now, summary)}
        self._heard.labels(member).set(now)
        return web.Response(status=204)

    def _refusal(self, request: web.Request, member: str) -> web.Response | None:
        """An answer for whoever may not ask; who is not known learns no names."""
        tokens = self._files.tokens
        if tokens is not None:
            scheme, _, given = request.headers.get("Authorization", "").partition(" ")
            expected = tokens.get(member)
            # Compared also where there is none, so that time does not tell which members there are.
            same = hmac.compare_digest(given.strip().encode("utf-8", "replace"), expected or b"\0")
            if scheme.lower() != "bearer" or expected is None or not same:
                return _problem(401, "the token is not that of the member")
        if self._files.plan.member(member) is None:
            return _problem(404, "the plan has no such member")
        return None

    def _count(self, request: web.Request, what: str, status: int) -> None:
        member = request.match_info["member"]
        known = self._files.plan.member(member) is not None
        self._requests.labels(member if known else "unknown", what, str(status)).inc()


def _problem(status: int, message: str) -> web.Response:
    return web.Response(status=status, text=json.dumps({"message": message}), content_type="application/json")


def _stamp(path: Path, flag: str) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError as error:
        raise InvalidInputError(flag, f"cannot read {path}: {error}") from error
    return found.st_ino, found.st_mtime_ns, found.st_size
