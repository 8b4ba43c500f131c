"""Messages of a conversation, and the prompt that a model makes of them: tokens, and images between them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import BaseModel

from heliotrope_sim.emulator.errors import bad_request
from heliotrope_sim.emulator.multimodal import images
from heliotrope_sim.emulator.multimodal.config import VisualTokens
from heliotrope_sim.emulator.multimodal.images import Image
from heliotrope_sim.emulator.tokens import END_OF_IMAGE, Tokens, framed_image, tokenize, tokenize_turns

MAX_IMAGES = 64


@dataclass(frozen=True, slots=True)
class PlacedImage:
    """An image of a prompt, and where it ends."""

    image: Image
    end: int
    """Tokens of the prompt up to its last one."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a model reads."""

    tokens: Tokens
    images: tuple[PlacedImage, ...] = ()


class ContentPart(BaseModel):
    """One part of a message's content."""

    type: str
    text: str | None = None
    image_url: Any = None


class Message(BaseModel):
    """One message of a conversation."""

    role: str
    content: str | list[ContentPart] | None = None

    def parts(self, visual: VisualTokens | None) -> Iterator[str | Image]:
        """Its text, joined as far as no image is in between, and its images.

        Args:
            visual: how the model sees images; None: not at all.

        Raises:
            ApiError: 400 for a part that the model cannot take.
        """
        if self.content is None or isinstance(self.content, str):
            yield self.content or ""
            return
        texts: list[str] = []
        for part in self.content:
            if part.type == "text" and part.text is not None:
                texts.append(part.text)
                continue
            if visual is None:
                raise bad_request(
                    f"The model is text only: content of type {part.type!r} is not supported.", "messages"
                )
            if part.type != "image_url":
                raise bad_request(f"Content of type {part.type!r} is not supported.", "messages")
            if texts:
                yield "\n".join(texts)
                texts.clear()
            yield images.read(part.image_url, visual)
        if texts:
            yield "\n".join(texts)


def prompt_of(
    messages: Sequence[Message], visual: VisualTokens | None, tools: list[dict[str, Any]] | None = None
) -> Prompt:
    """The prompt of a conversation.

    Raises:
        ApiError: 400 for content that the model cannot take, or too many images.
    """
    found: list[Image] = []
    turns: list[tuple[str, list[Tokens]]] = []
    for message in messages:
        content: list[Tokens] = []
        for part in message.parts(visual):
            if isinstance(part, Image):
                found.append(part)
                if len(found) > MAX_IMAGES:
                    raise bad_request(f"At most {MAX_IMAGES} image(s) may be provided in one prompt.", "messages")
                content.append(framed_image(part.placeholder()))
            else:
                content.append(tokenize(part))
        turns.append((message.role, content))
    tokens = tokenize_turns(turns, tools)
    if not found:
        return Prompt(tokens)
    ends = np.flatnonzero(tokens == END_OF_IMAGE)
    return Prompt(tokens, tuple(PlacedImage(image, int(end)) for image, end in zip(found, ends, strict=True)))
