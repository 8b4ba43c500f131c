"""From a parsed request to what the engine gets: the answer's length, the images, the KV that others have."""

import asyncio
import itertools
from collections.abc import Sequence

from heliotrope_sim.emulator.answers import Answer, plan_answer, prompt_key
from heliotrope_sim.emulator.blocks import BlockChain, PromptImage
from heliotrope_sim.emulator.driver import EngineDriver
from heliotrope_sim.emulator.errors import bad_request
from heliotrope_sim.emulator.messages import Prompt
from heliotrope_sim.emulator.protocol import GenerationRequest
from heliotrope_sim.emulator.transfer.node import TransferNode
from heliotrope_sim.emulator.transfer.params import read_ec, read_kv
from heliotrope_sim.emulator.transfer.pulls import Pull
from heliotrope_sim.engine import ImageInput, Request


class Intake:
    """What comes before an engine's queue.

    Args:
        driver: the engine.
        transfer: its part in transfers; None: it exchanges nothing.
    """

    def __init__(self, driver: EngineDriver, transfer: TransferNode | None) -> None:
        self._driver = driver
        self._transfer = transfer
        self._serial = itertools.count(1)

    def plan(self, body: GenerationRequest, prompt: Prompt, fixed_tokens: int | None) -> Answer:
        """Decide the answer to a prompt.

        Args:
            body: the request.
            prompt: its prompt.
            fixed_tokens: see `plan_answer`.

        Raises:
            ApiError: 400 if prompt and answer do not fit the model.
        """
        driver, tokens, limit = self._driver, len(prompt.tokens), body.token_limit
        if not tokens:
            raise bad_request("The decoder prompt cannot be empty", "prompt")
        room = driver.max_model_len - tokens
        if room < 1:
            raise bad_request(
                f"This model's maximum context length is {driver.max_model_len} tokens. However, your prompt "
                f"contains {tokens} input tokens, which exceeds this limit even without any output tokens. "
                f"Please reduce the length of the input prompt.",
                "input_tokens",
            )
        if limit is not None and limit > driver.max_model_len:
            raise bad_request(
                f"max_tokens={limit} cannot be greater than max_model_len={driver.max_model_len}. "
                f"Please request fewer output tokens.",
                "max_tokens",
            )
        return plan_answer(
            prompt_key(prompt.tokens, driver.config.seed, body.seed),
            driver.config.output_length,
            limit=room if limit is None else min(room, limit),
            ignore_eos=body.ignore_eos,
            min_tokens=body.min_tokens,
            fixed_tokens=fixed_tokens,
        )

    def encoding(self, prompt: Prompt) -> Request:
        """What an encoder gets: the images alone."""
        images = [ImageInput(placed.image.mm_hash, placed.image.tokens, placed.end) for placed in prompt.images]
        return Request(str(next(self._serial)), len(prompt.tokens), 1, images=images, encode_only=True)

    async def request(
        self, body: GenerationRequest, prompt: Prompt, answer: Answer, reader: str
    ) -> tuple[Request, Pull | None]:
        """What the engine gets, and the KV that another engine holds for it.

        Args:
            body: the request.
            prompt: its prompt.
            answer: its answer.
            reader: the id of its response.

        Raises:
            ApiError: 500 if KV of a remote prefill does not come and the policy is to fail.
        """
        transfer = self._transfer
        hashes = BlockChain(
            prompt.tokens,
            answer.token_ids(),
            self._driver.engine.kv.block_size,
            seed=self._driver.config.hash_seed,
            salt=body.cache_salt,
            images=[
                PromptImage(placed.image.mm_hash, placed.end - placed.image.tokens, placed.image.tokens)
                for placed in prompt.images
            ],
        )
        hold_ns, pull = None, None
        if transfer is not None:
            asked = read_kv(body.kv_transfer_params)
            if asked.remote_decode and transfer.config.produces:
                hold_ns = transfer.source.hold_ns
            pull = await transfer.pulls.kv(asked, len(prompt.tokens), hashes, reader)
        try:
            images = await self._images(body, prompt, hashes, 0 if pull is None else pull.external.tokens, reader)
        except asyncio.CancelledError:
            if pull is not None and transfer is not None:
                transfer.pulls.let_go(pull)
            raise
        request = Request(
            str(next(self._serial)),
            len(prompt.tokens),
            answer.tokens,
            hashes,
            external=None if pull is None else pull.external,
            hold_ns=hold_ns,
            images=images,
        )
        return request, pull

    def decline(self, body: GenerationRequest, reader: str) -> None:
        """Tell whoever holds KV for a request that is not served."""
        if self._transfer is not None:
            self._transfer.pulls.decline(read_kv(body.kv_transfer_params), reader)

    async def _images(
        self, body: GenerationRequest, prompt: Prompt, hashes: Sequence[int], pulled_tokens: int, reader: str
    ) -> list[ImageInput]:
        """The images of a prompt, with what loading those costs that an encoder has and this engine lacks.

        Those whose KV is cached, or pulled, are not lacked.
        """
        engine = self._driver.engine
        if not prompt.images or engine.encoder is None:
            return []
        loads: dict[str, tuple[int, int]] = {}
        if self._transfer is not None and body.ec_transfer_params:
            cached = engine.kv.match(hashes, len(hashes)) * engine.kv.block_size
            covered = max(cached, pulled_tokens)
            needed = {
                placed.image.mm_hash: placed.image.tokens
                for placed in prompt.images
                if placed.end > covered and placed.image.mm_hash not in engine.encoder.cache
            }
            loads = await self._transfer.pulls.embeddings(read_ec(body.ec_transfer_params), needed, reader)
        found = []
        for placed in prompt.images:
            load_ns, drawn = loads.get(placed.image.mm_hash, (None, 0))
            found.append(ImageInput(placed.image.mm_hash, placed.image.tokens, placed.end, load_ns, drawn))
        return found
