"""What chats hold beside text: counted by the stated rule, told apart, never fetched, bounded."""

import base64
import json
import struct
from typing import Any

import pytest

from heliotrope.errors import InvalidInputError
from heliotrope.media.attachment import BORDER_TOKENS, Attachment, Modality
from heliotrope_epp.parsers import media
from heliotrope_epp.parsers.openai import CHAT_PATH, ParsedBody, parse


def picture(width: int, height: int = 280) -> dict[str, Any]:
    """A picture of ten times width / 28 tokens."""
    data = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height)
    return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(data).decode()}}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def parsed(*parts: dict[str, Any]) -> ParsedBody:
    body = {"model": "m", "messages": [{"role": "user", "content": list(parts)}]}
    return parse(CHAT_PATH, json.dumps(body).encode())


def test_visual_tokens_count_as_the_prompts() -> None:
    words, one, two = parsed(text("what?")), parsed(picture(280), text("what?")), parsed(picture(280), picture(560))
    assert one.prompt_tokens - words.prompt_tokens == pytest.approx(100 + BORDER_TOKENS, abs=1)
    assert [item.tokens for item in two.media] == [100 + BORDER_TOKENS, 200 + BORDER_TOKENS]
    assert words.media == ()


def test_a_picture_that_comes_twice_is_encoded_once_but_read_twice() -> None:
    once, twice = parsed(picture(280)), parsed(picture(280), picture(280))
    assert twice.media == once.media
    assert twice.prompt_tokens - once.prompt_tokens == pytest.approx(102, abs=1)


def test_equal_pictures_share_a_prefix_and_others_do_not() -> None:
    same, again, other = parsed(picture(280)), parsed(picture(280), text("why?")), parsed(picture(308))
    assert again.prompt.startswith(same.prompt)
    assert other.prompt[:100] != same.prompt[:100]
    assert same.prompt.isascii()


def test_an_address_is_never_fetched_and_its_size_is_assumed() -> None:
    url = "https://10.255.255.1/secret-cat.png"
    body = parsed({"type": "image_url", "image_url": {"url": url}}, {"type": "image_url", "image_url": url})
    (found,) = body.media
    assert (found.tokens, found.assumed) == (37 * 37 + BORDER_TOKENS, True)
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    ("part", "modality"),
    [
        ({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}, Modality.AUDIO),
        ({"type": "audio_url", "audio_url": {"url": "https://a.example/b.wav"}}, Modality.AUDIO),
        ({"type": "video_url", "video_url": {"url": "https://a.example/b.mp4"}}, Modality.VIDEO),
        ({"type": "file", "file": {"file_id": "f"}}, Modality.OTHER),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}, Modality.IMAGE),
        ({"type": "image_url", "image_url": 7}, Modality.IMAGE),
        ({"type": "image_url"}, Modality.IMAGE),
    ],
)
def test_what_is_of_unknown_size_is_kept_as_unknown(part: dict[str, Any], modality: Modality) -> None:
    (found,) = parsed(part, text("and this?")).media
    assert (found.modality, found.tokens) == (modality, None)


def test_things_without_an_address_are_told_apart_by_what_they_hold() -> None:
    one, two = ({"type": "input_audio", "input_audio": {"data": data, "format": "wav"}} for data in ("AAAA", "AAAB"))
    assert len(parsed(one, one).media) == 1
    assert len(parsed(one, two).media) == 2


def test_the_order_is_that_of_first_appearance_over_all_messages() -> None:
    messages = [
        {"role": "user", "content": [picture(280), picture(560)]},
        {"role": "assistant", "content": "A cat."},
        {"role": "user", "content": [picture(560), picture(308)]},
    ]
    body = parse(CHAT_PATH, json.dumps({"model": "m", "messages": messages}).encode())
    assert [item.tokens for item in body.media] == [102, 202, 112]


def test_there_is_a_limit_to_their_number_and_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media, "MAX_ATTACHMENTS", 2)
    assert len(parsed(picture(280), picture(308), picture(280)).media) == 2
    with pytest.raises(InvalidInputError, match=r"\$.messages"):
        parsed(picture(280), picture(308), picture(336))
    monkeypatch.setattr(media, "MAX_TOKENS", 203)
    with pytest.raises(InvalidInputError, match="more than"):
        parsed(picture(280), picture(280))


def test_an_attachment_has_no_content() -> None:
    assert set(Attachment.__slots__) == {"modality", "key", "tokens", "assumed"}
