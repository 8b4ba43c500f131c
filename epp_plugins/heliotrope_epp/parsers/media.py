"""Images, sound and film in the parts of a chat. Nothing is fetched or decoded, and no address is kept."""

from typing import Any

import msgspec
from xxhash import xxh3_128_hexdigest

from heliotrope.errors import InvalidInputError
from heliotrope.media.attachment import BORDER_TOKENS, Attachment, Modality, image_tokens
from heliotrope.media.tokens import VisualTokenRule

MAX_ATTACHMENTS = 256
"""A request with more is refused."""
MAX_TOKENS = 1_000_000
"""So is one whose images are more tokens together: no model reads that much, and each is hashed."""
RULE = VisualTokenRule()
ASSUMED_TOKENS = RULE.assumed_tokens + BORDER_TOKENS
"""Of an image whose size nobody knows, its marks included."""

_TEXT_TYPES = frozenset({"", "text", "input_text", "output_text", "refusal", "thinking"})
_MODALITIES = {
    "image_url": Modality.IMAGE,
    "input_audio": Modality.AUDIO,
    "audio_url": Modality.AUDIO,
    "video_url": Modality.VIDEO,
}


class Part(msgspec.Struct):
    """One part of a message's content; fields of other kinds of parts are let through."""

    type: str = ""
    text: str = ""
    image_url: Any = None
    audio_url: Any = None
    video_url: Any = None
    input_audio: Any = None


class Attachments:
    """What a request holds beside text, each thing once, in order: as llm-d's sidecar hands it to encoders."""

    __slots__ = ("_by_key", "_tokens")

    def __init__(self) -> None:
        self._by_key: dict[str, Attachment] = {}
        self._tokens = 0

    def all(self) -> tuple[Attachment, ...]:
        """In the order of their first appearance."""
        return tuple(self._by_key.values())

    def text_of(self, part: Part) -> str:
        """What stands in the prompt's text for a part: 4 characters for every token of a thing that has some.

        Equal things have equal characters and others have others, so that the prefix index tells them apart.

        Raises:
            InvalidInputError: if the limits are exceeded.
        """
        if part.type in _TEXT_TYPES:
            return part.text
        found = self._attachment(part)
        tokens = found.tokens or 0
        self._tokens += tokens
        if len(self._by_key) > MAX_ATTACHMENTS or self._tokens > MAX_TOKENS:
            limits = f"{MAX_ATTACHMENTS} images and other things or {MAX_TOKENS} tokens of them"
            raise InvalidInputError("body", f"more than {limits} - at `$.messages`")
        return (found.key * (tokens // 8 + 1))[: 4 * tokens] if tokens else found.key

    def _attachment(self, part: Part) -> Attachment:
        modality = _MODALITIES.get(part.type, Modality.OTHER)
        held = getattr(part, part.type) if part.type in _MODALITIES else None
        url = held.get("url") if isinstance(held, dict) else held
        named = url.encode("utf-8", "surrogatepass") if isinstance(url, str) else msgspec.json.encode(held)
        key = xxh3_128_hexdigest(named)
        known = self._by_key.get(key)
        if known is None:
            tokens, assumed = None, False
            if modality is Modality.IMAGE and isinstance(url, str):
                tokens, assumed = image_tokens(url, RULE)
            known = self._by_key[key] = Attachment(modality, key, tokens, assumed)
        return known
