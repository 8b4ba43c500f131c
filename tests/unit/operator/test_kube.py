"""Requests to an API server, on a local HTTP server: which answer is which error, rotated tokens, pages, silence."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from tests.unit.operator.memory import metrics

from heliotrope.errors import InvalidInputError
from heliotrope_operator.errors import (
    ApiError,
    ConflictError,
    ExpiredError,
    ForbiddenError,
    NotFoundError,
    UnavailableError,
)
from heliotrope_operator.kube import PAGE, Kube
from heliotrope_operator.metrics import Metrics
from heliotrope_operator.resources import RESOURCES, Kind

PATH = "/apis/heliotrope.io/v1alpha1/regionprofiles/es"


class Server:
    """Answers what the test says, to whoever has the token."""

    def __init__(self) -> None:
        self.token = "first"
        self.answer: tuple[int, str] | None = None
        self.seen: list[tuple[str, str, str, bytes]] = []
        self.runner = web.AppRunner(self._app(), access_log=None)
        self.port = 0

    def _app(self) -> web.Application:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        return app

    async def start(self) -> None:
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", self.port).start()
        self.port = self.runner.addresses[0][1]

    async def _handle(self, request: web.Request) -> web.Response:
        self.seen.append((request.method, request.path, request.content_type, await request.read()))
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            code, text = status(401, "Unauthorized")
            return web.Response(status=code, text=text)
        if request.path == "/version":
            return web.json_response({"major": "1", "minor": "34"})
        if self.answer is not None:
            return web.Response(status=self.answer[0], text=self.answer[1])
        page = int(request.query.get("continue", "0"))
        assert request.query["limit"] == str(PAGE)
        following = {"continue": str(page + 1)} if page < 2 else {}
        return web.json_response({"metadata": {"resourceVersion": "7", **following}, "items": [{"n": page}]})


def status(code: int, message: str) -> tuple[int, str]:
    return code, json.dumps({"kind": "Status", "apiVersion": "v1", "code": code, "message": message})


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    await server.start()
    yield server
    await server.runner.cleanup()


def write_kubeconfig(path: Path, port: int, token: str) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(config))


@pytest.fixture
def counted() -> Metrics:
    return metrics()


@pytest.fixture
async def kube(server: Server, tmp_path: Path, counted: Metrics) -> AsyncIterator[Kube]:
    write_kubeconfig(tmp_path / "config", server.port, "first")
    kube = Kube(tmp_path / "config", counted)
    assert await kube.connect() == f"http://127.0.0.1:{server.port}"
    yield kube
    await kube.close()


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (400, ApiError),
        (403, ForbiddenError),
        (404, NotFoundError),
        (409, ConflictError),
        (410, ExpiredError),
        (422, ApiError),
        (429, UnavailableError),
        (500, UnavailableError),
        (503, UnavailableError),
    ],
)
async def test_each_answer_is_its_error_and_is_asked_for_once(
    server: Server, kube: Kube, counted: Metrics, code: int, error: type[ApiError]
) -> None:
    server.answer = status(code, "because")

    with pytest.raises(ApiError, match=f"GET {PATH}: {code}: because") as caught:
        await kube.get(PATH)

    assert type(caught.value) is error
    assert len(server.seen) == 2  # the version, and this
    labels = {"method": "GET", "code": str(code)}
    assert counted.registry.get_sample_value("heliotrope_kubernetes_requests_total", labels) == 1


async def test_what_is_no_status_is_not_repeated_in_the_message(server: Server, kube: Kube) -> None:
    for body in ("<html>secret</html>", json.dumps({"kind": "Secret", "message": "secret"})):
        server.answer = (500, body)
        with pytest.raises(UnavailableError) as caught:
            await kube.get(PATH)
        assert "secret" not in str(caught.value)


async def test_a_rotated_token_is_read_again(server: Server, kube: Kube, tmp_path: Path) -> None:
    server.token = "second"
    write_kubeconfig(tmp_path / "config", server.port, "second")
    server.answer = (200, '{"fine": true}')

    assert await kube.get(PATH) == {"fine": True}
    assert await kube.get(PATH) == {"fine": True}
    assert len(server.seen) == 4  # the version, refused, repeated, and the next at once


async def test_a_token_that_stays_wrong_is_refused_after_one_repetition(server: Server, kube: Kube) -> None:
    server.token = "other"

    with pytest.raises(ApiError, match="401: Unauthorized"):
        await kube.get(PATH)

    assert len(server.seen) == 3


async def test_silence_is_unavailable(server: Server, kube: Kube, counted: Metrics) -> None:
    await server.runner.cleanup()

    with pytest.raises(UnavailableError, match=f"PATCH {PATH}"):
        await kube.merge(PATH, {})

    labels = {"method": "PATCH", "code": "0"}
    assert counted.registry.get_sample_value("heliotrope_kubernetes_requests_total", labels) == 1


async def test_an_answer_that_is_not_json_is_not_mistaken_for_one(server: Server, kube: Kube) -> None:
    server.answer = (200, "<html>")

    with pytest.raises(UnavailableError, match="is not JSON"):
        await kube.get(PATH)


async def test_a_collection_is_read_page_by_page(server: Server, kube: Kube) -> None:
    resource = RESOURCES[Kind.CARBON_POLICY]

    pages = [page async for page in kube.pages(resource, "ns")]

    assert [(page.items, page.resource_version) for page in pages] == [([{"n": n}], "7") for n in range(3)]
    assert {path for _, path, _, _ in server.seen[1:]} == {"/apis/heliotrope.io/v1alpha1/namespaces/ns/carbonpolicies"}


async def test_bodies_are_sent_as_what_they_are(server: Server, kube: Kube) -> None:
    server.answer = (200, "{}")
    await kube.merge(PATH, {"status": {"a": None}})
    await kube.create(PATH, {"b": 1})
    await kube.replace(PATH, {"c": 2})

    assert [(method, content_type, json.loads(body)) for method, _, content_type, body in server.seen[1:]] == [
        ("PATCH", "application/merge-patch+json", {"status": {"a": None}}),
        ("POST", "application/json", {"b": 1}),
        ("PUT", "application/json", {"c": 2}),
    ]


async def test_kopf_gets_the_same_credentials(server: Server, kube: Kube) -> None:
    info = await kube.connection_info()

    assert (info.server, info.token, info.insecure) == (f"http://127.0.0.1:{server.port}", "first", False)


async def test_without_credentials_the_message_says_what_to_do(tmp_path: Path, counted: Metrics) -> None:
    kube = Kube(tmp_path / "missing", counted)

    with pytest.raises(InvalidInputError, match="give a kubeconfig"):
        await kube.connect()
    await kube.close()
