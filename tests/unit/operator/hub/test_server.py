"""The hub over real TLS: documents, tokens, changed files, and nothing for strangers."""

import asyncio
import json
import ssl
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.unit.operator.hub.running import PLAN, certificate, hub

from heliotrope.errors import InvalidInputError
from heliotrope.scale.ceilings import parse_ceilings
from heliotrope_operator.hub.client import HubClient, HubError
from heliotrope_operator.hub.server import HubFiles
from heliotrope_operator.hub.settings import HubSettings, MemberSettings

NEEDS: dict[str, Any] = {"schema": 1, "needs": [{"region": "es", "accelerator": "H100", "accelerators": 3}]}
BUSY: dict[str, Any] = {"schema": 1, "needs": [{"region": "es", "accelerator": "H100", "accelerators": 40}]}


def ceiling(body: bytes | None) -> int | None:
    assert body is not None
    return parse_ceilings(body, time.time()).ceiling("es", "H100")


async def test_members_tell_needs_and_pull_what_they_may_use(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with hub(tmp_path, caplog) as running:
        a, b = HubClient(running.member("a")), HubClient(running.member("b", "token-b"))
        assert ceiling(await a.exchange(NEEDS)) == 7  # b is silent and keeps its ten; what is left is shared out
        assert ceiling(await b.exchange(BUSY)) == 17
        assert ceiling(await a.exchange(NEEDS)) == 3
        assert await a.exchange(NEEDS) is None
        a.forget()
        assert ceiling(await a.exchange(NEEDS)) == 3


async def test_a_document_is_issued_anew_before_it_expires(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with hub(tmp_path, caplog, valid_s=30.0) as running:
        client = HubClient(running.member())
        body = await client.exchange(NEEDS)
        assert body is not None
        first = parse_ceilings(body, time.time())
        assert 20.0 <= first.expires_unix_s - time.time() <= 30.0


@pytest.mark.parametrize(
    ("name", "token", "words"),
    [
        ("a", "token-b", "refuses the token"),
        ("a", None, "refuses the token"),
        ("c", "token-a", "refuses the token"),
        ("a", "tokén", "cannot use the files"),
        ("a", "", "holds no token"),
    ],
)
async def test_a_member_sees_its_own_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, token: str | None, words: str
) -> None:
    async with hub(tmp_path, caplog) as running:
        with pytest.raises(HubError, match=words):
            await HubClient(running.member(name, token)).exchange(NEEDS)
        assert "token-" not in caplog.text


async def test_requests_that_make_no_sense_are_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with hub(tmp_path, caplog) as running:
        context = ssl.create_default_context(cafile=str(tmp_path / "tls.crt"))
        headers = {"Authorization": "Bearer token-a"}
        async with httpx.AsyncClient(verify=context, base_url=running.url, headers=headers) as client:
            for body in (b"", b"[", b"[" * 100_000, b'{"schema": 1, "needs": [{"region": ""}]}'):
                assert (await client.put("/v1/summaries/a", content=body)).status_code == 400
            assert (await client.put("/v1/summaries/a", content=b" " * 2_000_000)).status_code == 413
            assert (await client.get("/v1/ceilings/a%2F..%2Fb")).status_code in (401, 404)
            assert (await client.get("/v1/ceilings/a", headers={"Authorization": "Basic token-a"})).status_code == 401
            assert (await client.get("/v1/ceilings/a", headers={"If-None-Match": "nonsense"})).status_code == 200
            assert (await client.get("/healthz", headers={"Authorization": ""})).status_code == 200


async def test_changed_files_are_used_and_wrong_ones_left_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with hub(tmp_path, caplog) as running:
        client = HubClient(running.member())
        assert ceiling(await client.exchange(NEEDS)) == 7
        running.plan("budgets: [")
        await said(caplog, "the new plan is not used")
        assert await client.exchange(NEEDS) is None
        running.plan(PLAN | {"budgets": [{"region": "es", "accelerators": 6}]})
        await said(caplog, "plan read again")
        assert ceiling(await client.exchange(NEEDS)) == 3

        certificate(tmp_path)
        await said(caplog, "certificate read again")
        client.forget()
        assert ceiling(await client.exchange(NEEDS)) == 3
        (tmp_path / "tls.key").write_text("no key")
        await said(caplog, "the new certificate is not used")
        client.forget()
        assert ceiling(await client.exchange(NEEDS)) == 3

        (tmp_path / "tokens" / "a").write_text("another")
        await said(caplog, "tokens read again")
        with pytest.raises(HubError, match="refuses the token"):
            await client.exchange(NEEDS)


async def said(caplog: pytest.LogCaptureFixture, words: str) -> None:
    async with asyncio.timeout(10):
        while words not in caplog.text:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("broken", "flag"), [("plan.yaml", "--plan"), ("tls.crt", "--tls-cert"), ("tls.key", "--tls-cert")]
)
def test_a_start_with_a_wrong_file_names_the_flag(tmp_path: Path, broken: str, flag: str) -> None:
    from prometheus_client import CollectorRegistry

    certificate(tmp_path)
    (tmp_path / "plan.yaml").write_text(json.dumps(PLAN))
    (tmp_path / broken).write_text("nonsense: [")
    settings = HubSettings(tmp_path / "plan.yaml", tmp_path / "tls.crt", tmp_path / "tls.key", None)

    with pytest.raises(InvalidInputError) as caught:
        HubFiles(settings, CollectorRegistry()).load()
    assert caught.value.path == flag


@pytest.mark.parametrize("url", ["http://hub:8443", "hub:8443", "https://", "https://a:b@hub", "https://[", ""])
def test_an_address_that_would_tell_the_token_is_refused(url: str) -> None:
    with pytest.raises(InvalidInputError, match="--hub-url"):
        MemberSettings(url, "a")
    with pytest.raises(InvalidInputError, match="--hub-member"):
        MemberSettings("https://hub:8443", "")
