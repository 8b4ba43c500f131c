"""The routes at which engines ask each other."""

from collections.abc import Sequence

from aiohttp import web
from pydantic import BaseModel

from heliotrope_sim.emulator.errors import bad_request
from heliotrope_sim.emulator.multimodal.config import EncoderConfig
from heliotrope_sim.emulator.protocol import parse
from heliotrope_sim.emulator.transfer import wire
from heliotrope_sim.emulator.transfer.source import KvSourceService


class TransferApi:
    """What one engine lets others read."""

    def __init__(self, source: KvSourceService, encoder: EncoderConfig | None) -> None:
        self._source = source
        self._encoder = encoder

    def routes(self) -> Sequence[web.RouteDef]:
        """What to serve."""
        return [
            web.post(wire.READ_PATH, self.read),
            web.post(wire.LOOKUP_PATH, self.look_up),
            web.post(wire.RENEW_PATH, self.renew),
            web.post(wire.RELEASE_PATH, self.release),
            web.post(wire.EMBEDDINGS_PATH, self.embeddings),
        ]

    async def read(self, request: web.Request) -> web.Response:
        """Grant the blocks of a finished prefill."""
        return _json(self._source.read(parse(wire.ReadRequest, request.content_type, await request.read())))

    async def look_up(self, request: web.Request) -> web.Response:
        """Grant what is cached of a prompt."""
        return _json(self._source.look_up(parse(wire.LookupRequest, request.content_type, await request.read())))

    async def renew(self, request: web.Request) -> web.Response:
        """Hold on."""
        self._source.renew(parse(wire.RenewRequest, request.content_type, await request.read()).hold_id)
        return _json(wire.Done())

    async def release(self, request: web.Request) -> web.Response:
        """Let go."""
        self._source.release(parse(wire.ReleaseRequest, request.content_type, await request.read()))
        return _json(wire.Done())

    async def embeddings(self, request: web.Request) -> web.Response:
        """Grant embeddings of images."""
        if self._encoder is None:
            raise bad_request("This engine takes no images.")
        asked = parse(wire.EmbeddingsRequest, request.content_type, await request.read())
        return _json(self._source.embeddings(asked, self._encoder))


def _json(answer: BaseModel) -> web.Response:
    return web.Response(body=answer.model_dump_json().encode(), content_type="application/json")
