"""Sources of demand events over real HTTP: tokens, outages, samples, and what holds meanwhile."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf
from typing import Any

import pytest
from tests.unit.operator.memory import UNAVAILABLE, MemoryApi, MemoryKube

from heliotrope.api.v1alpha1.common import SecretKeyRef
from heliotrope.api.v1alpha1.controls import DemandResponse
from heliotrope.errors import CredentialsMissingError, SignalUnavailableError
from heliotrope.power.demand import Answer
from heliotrope_operator.errors import ForbiddenError
from heliotrope_operator.power.sources import HOLD_S, PROMETHEUS_POLL_S, RETRY_S, DemandSources
from heliotrope_operator.power.tokens import ORIGIN_ANNOTATION, demand_token, origin
from heliotrope_operator.resources import SECRETS, Key, Kind

KEY = Key(Kind.CARBON_POLICY, "llm", "green")


class Server:
    """Answers with what it is told."""

    def __init__(self) -> None:
        self.status, self.body = 200, b"[]"
        self.seen: list[tuple[str, str | None]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.seen.append((self.path, self.headers.get("Authorization")))
                self.send_response(outer.status)
                self.send_header("Content-Length", str(len(outer.body)))
                self.end_headers()
                self.wfile.write(outer.body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


class Asking:
    """Sources with a clock of the test's."""

    def __init__(self, **source: Any) -> None:
        self.now = 1_000.0
        self.api = MemoryApi()
        self.response = DemandResponse.model_validate_json(json.dumps(source))
        self.sources = DemandSources(
            MemoryKube(self.api),  # type: ignore[arg-type]
            namespace="system",
            unix_clock=lambda: self.now,
        )
        self.answered: Answer | None = None

    async def ask(self, seconds: float = 0.0) -> float | None:
        self.now += seconds
        return await self.sources.ask(KEY, self.response, self.answered)

    def events(self) -> list[tuple[str, float, float | None]]:
        heard = self.sources.heard(KEY, self.response, self.answered)
        return [(event.name, event.end_unix_s, event.watts) for event in heard.events]


def secret(annotations: dict[str, str], data: dict[str, str] | None = None) -> dict[str, Any]:
    encoded = {name: base64.b64encode(value.encode()).decode() for name, value in (data or {"token": "t0p"}).items()}
    return {"kind": "Secret", "metadata": {"name": "vtn", "annotations": annotations}, "data": encoded}


async def test_a_list_is_asked_with_its_token_and_an_outage_ends_nothing(server: Server) -> None:
    http = {"url": f"{server.url}/events", "pollInterval": "20s", "tokenSecretRef": {"name": "vtn", "key": "token"}}
    asking = Asking(http=http)
    asking.api.put(SECRETS.path("system", "vtn"), secret({ORIGIN_ANNOTATION: server.url}))
    endless = {"name": "open", "start": "1970-01-01T00:00:00Z", "duration": "P9999Y", "watts": 5}
    bounded = {"name": "short", "start": "1970-01-01T00:00:00Z", "duration": "PT2H", "watts": 7}
    server.body = json.dumps({"events": [endless, bounded]}).encode()

    assert not asking.sources.followed(KEY, asking.response)
    assert await asking.ask() == 20.0
    assert asking.sources.followed(KEY, asking.response)
    assert server.seen == [("/events", "Bearer t0p")]
    assert asking.events() == [("open", inf, 5.0), ("short", 7_200.0, 7.0)]

    server.status = 503
    assert await asking.ask(60.0) == RETRY_S
    assert asking.events() == [("open", 1_000.0 + HOLD_S, 5.0), ("short", 7_200.0, 7.0)]
    server.status, server.body = 200, b"[]"
    await asking.ask(60.0)
    assert asking.events() == []


async def test_before_the_first_answer_what_was_answered_goes_on(server: Server) -> None:
    asking = Asking(http={"url": server.url})
    asking.answered = Answer("evening", 900.0, 950.0, 1_500.0, 100.0, 70.0)
    assert asking.events() == [("evening", 1_500.0, 70.0)]
    server.body = b"<html>"
    assert await asking.ask() == RETRY_S
    heard = asking.sources.heard(KEY, asking.response, asking.answered)
    assert heard.pending
    assert "not JSON" in (heard.failure or "")
    assert asking.events() == [("evening", 1_500.0, 70.0)]
    asking.now = 1_500.0
    assert asking.events() == []


async def test_another_source_starts_anew(server: Server) -> None:
    asking = Asking(http={"url": server.url})
    server.body = b'{"events": [{"name": "a", "start": "1970-01-01T00:00:00Z", "duration": "PT9H"}]}'
    await asking.ask()
    assert asking.events()
    asking.response = DemandResponse.model_validate_json(json.dumps({"http": {"url": f"{server.url}/other"}}))
    assert not asking.sources.followed(KEY, asking.response)
    assert asking.events() == []
    asking.sources.keep(frozenset())
    assert await asking.ask() is not None


def vector(*values: str) -> bytes:
    result = [{"metric": {"n": str(number)}, "value": [1, value]} for number, value in enumerate(values)]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


async def test_a_sample_is_an_event_while_it_is_there(server: Server) -> None:
    asking = Asking(prometheus={"url": server.url, "query": "limit_watts"})
    server.body = vector("5000")
    assert await asking.ask() == PROMETHEUS_POLL_S
    assert asking.events() == [("prometheus", inf, 5_000.0)]
    asking.answered = Answer("prometheus", 1_000.0, 1_000.0, 1_900.0, None, 5_000.0)
    await asking.ask(30.0)
    (event,) = asking.sources.heard(KEY, asking.response, asking.answered).events
    assert event.start_unix_s == 1_000.0  # it goes on, also after a restart

    server.body = vector("NaN")
    await asking.ask(30.0)
    assert asking.events() == []
    server.body = vector("1", "2")
    await asking.ask(30.0)
    assert "aggregate it" in (asking.sources.heard(KEY, asking.response, None).failure or "")


REF = SecretKeyRef(name="vtn", key="token")


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        (None, "does not exist"),
        (secret({}), "may not be sent to https://vtn.example:443"),
        (secret({ORIGIN_ANNOTATION: "https://vtn.example:8443"}), "may not be sent"),
        (secret({ORIGIN_ANNOTATION: "http://vtn.example"}), "may not be sent"),
        (secret({ORIGIN_ANNOTATION: "https://vtn.example.evil.example"}), "may not be sent"),
        (secret({ORIGIN_ANNOTATION: "https://vtn.example"}, {"other": "x"}), "has no key token"),
        (secret({ORIGIN_ANNOTATION: "https://vtn.example"}) | {"data": {"token": "%%%"}}, "is not base64"),
    ],
)
async def test_a_token_goes_nowhere_else(stored: dict[str, Any] | None, said: str) -> None:
    api = MemoryApi()
    if stored is not None:
        api.put(SECRETS.path("system", "vtn"), stored)
    with pytest.raises(CredentialsMissingError, match=said) as caught:
        await demand_token(MemoryKube(api), "system", REF, "https://vtn.example/events?x=1")  # type: ignore[arg-type]
    assert "t0p" not in str(caught.value)


async def test_a_token_that_may_be_sent() -> None:
    api = MemoryApi()
    api.put(SECRETS.path("system", "vtn"), secret({ORIGIN_ANNOTATION: "https://VTN.example/"}))
    found = await demand_token(MemoryKube(api), "system", REF, "https://vtn.example:443/events")  # type: ignore[arg-type]
    assert found.reveal() == "t0p"


async def test_a_server_without_an_answer_is_no_missing_token() -> None:
    kube = MemoryKube(MemoryApi())
    kube.failure = UNAVAILABLE
    with pytest.raises(SignalUnavailableError, match="no answer"):
        await demand_token(kube, "system", REF, "https://vtn.example")  # type: ignore[arg-type]
    kube.failure = ForbiddenError("no")
    with pytest.raises(CredentialsMissingError, match="allow its service account"):
        await demand_token(kube, "system", REF, "https://vtn.example")  # type: ignore[arg-type]


def test_origins() -> None:
    assert origin("HTTPS://User@Host.example/p?q") == "https://host.example:443"
    assert origin("http://[::1]:8080/") == "http://[::1]:8080"
    assert (origin("ftp://x"), origin("no address"), origin("")) == ("", "", "")
