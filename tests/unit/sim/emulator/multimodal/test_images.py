import base64
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.media import pictures
from heliotrope.media.tokens import visual_tokens
from heliotrope_sim.emulator.errors import ApiError
from heliotrope_sim.emulator.messages import MAX_IMAGES, Message, prompt_of
from heliotrope_sim.emulator.multimodal import images
from heliotrope_sim.emulator.multimodal.config import EncoderConfig, VisualTokens
from heliotrope_sim.emulator.tokens import END_OF_IMAGE, START_OF_IMAGE

RULE = VisualTokens()


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height)


def data_url(data: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(data).decode()


PICTURES = {
    "png": png(640, 480),
    "gif": b"GIF89a" + struct.pack("<HH", 640, 480),
    "webp lossy": b"RIFF\0\0\0\0WEBPVP8 " + b"\0" * 7 + b"\x9d\x01\x2a" + struct.pack("<HH", 640 | 0x4000, 480),
    "webp lossless": b"RIFF\0\0\0\0WEBPVP8L" + b"\0" * 4 + b"\x2f" + struct.pack("<I", 639 | 479 << 14),
    "webp extended": b"RIFF\0\0\0\0WEBPVP8X" + b"\0" * 8 + (639).to_bytes(3, "little") + (479).to_bytes(3, "little"),
    "jpeg": b"\xff\xd8\xff\xe0" + struct.pack(">H", 16) + b"\0" * 14 + b"\xff\xff\xd0"
    b"\xff\xc4\x00\x03\x00" + b"\xff\xc2" + struct.pack(">HBHH", 17, 8, 480, 640),
}


@pytest.mark.parametrize("data", PICTURES.values(), ids=PICTURES.keys())
def test_sizes_are_read_from_the_first_bytes(data: bytes) -> None:
    assert pictures.size(data) == (640, 480)
    for end in range(len(data)):
        assert pictures.size(data[:end]) in (None, (640, 480))


@pytest.mark.parametrize("data", [b"", b"BM1234", png(0, 5), b"\xff\xd8\xff\xe0", b"RIFF\0\0\0\0WEBPXXXX" + b"\0" * 40])
def test_what_is_no_picture_has_no_size(data: bytes) -> None:
    assert pictures.size(data) is None


@given(st.binary(max_size=200), st.sampled_from([b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"RIFF\0\0\0\0WEBPVP8 "]))
def test_garbage_never_breaks_anything(data: bytes, head: bytes) -> None:
    found = pictures.size(head + data)
    assert found is None or min(found) > 0


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [
        # As Qwen2-VL's own processor rounds and scales.
        (28, 28, 4),
        (224, 224, 64),
        (640, 480, 23 * 17),
        (1024, 1024, 37 * 37),
        (1, 1, 4),
        (4096, 4096, 128 * 128),
        (8_000, 2_000, 256 * 64),
    ],
)
def test_tokens_of_an_image(width: int, height: int, tokens: int) -> None:
    assert visual_tokens(width, height, RULE.counted) == tokens


@given(st.integers(1, 20_000), st.integers(1, 20_000))
def test_an_image_is_never_more_tokens_than_the_limits_allow(width: int, height: int) -> None:
    tokens = visual_tokens(width, height, RULE.counted)
    # Sides that are far apart are not scaled below one patch.
    assert 1 <= tokens <= max(RULE.max_pixels // 28**2, max(width, height) // 28 + 1)


def test_equal_pictures_are_one_and_others_are_others() -> None:
    one, same, other = (images.read({"url": data_url(png(w, 28))}, RULE) for w in (56, 56, 84))
    assert one == same
    assert one.mm_hash != other.mm_hash
    assert one.placeholder().tolist() == [one.placeholder()[0]] * one.tokens
    assert one.placeholder()[0] != other.placeholder()[0]


def test_a_picture_that_would_have_to_be_fetched_has_the_assumed_size() -> None:
    web = images.read({"url": "https://example.com/a.png", "detail": "low"}, RULE)
    assert web.tokens == visual_tokens(1024, 1024, RULE.counted)
    assert web.mm_hash != images.read({"url": "https://example.com/b.png"}, RULE).mm_hash


@pytest.mark.parametrize(
    "part",
    [
        None,
        {},
        {"url": 3},
        {"url": "ftp://x/y.png"},
        {"url": "data:image/png,abc"},
        {"url": "data:image/png;base64"},
        {"url": "data:image/png;base64,!!!"},
        {"url": data_url(b"not a picture")},
        {"url": data_url(png(10_000, 10))},
    ],
)
def test_what_no_model_could_see_is_refused(part: Any) -> None:
    with pytest.raises(ApiError) as refused:
        images.read(part, RULE)
    assert refused.value.status == 400


def message(*content: dict[str, Any]) -> Message:
    return Message.model_validate({"role": "user", "content": list(content)})


def test_a_prompt_knows_where_its_images_end() -> None:
    picture = {"type": "image_url", "image_url": {"url": data_url(png(56, 56))}}
    text = {"type": "text", "text": "abcd"}
    prompt = prompt_of([message(text, picture, text, text), message(picture)], RULE)
    tokens = prompt.tokens.tolist()
    assert [p.end for p in prompt.images] == [i for i, t in enumerate(tokens) if t == END_OF_IMAGE]
    assert tokens.count(START_OF_IMAGE) == 2
    # role, text, [4 visual tokens], "abcd\nabcd" in 3, end; role, [4], end; the answer's role.
    assert len(tokens) == 1 + 1 + 6 + 3 + 1 + 1 + 6 + 1 + 1
    assert (
        prompt_of([message(text, text)], RULE).tokens.tolist() == prompt_of([message(text, text)], None).tokens.tolist()
    )


def test_a_model_without_eyes_refuses_images_and_any_model_too_many_or_other_things() -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://a/b"}}
    for visual, parts in ((None, [picture]), (RULE, [picture] * (MAX_IMAGES + 1)), (RULE, [{"type": "input_audio"}])):
        with pytest.raises(ApiError) as refused:
            prompt_of([message(*parts)], visual)
        assert refused.value.status == 400


def test_limits_must_hold_a_patch() -> None:
    for bad in ({"max_pixels": 100}, {"min_pixels": 10**9}):
        with pytest.raises(ValueError, match="max_pixels"):
            VisualTokens.model_validate(bad)


def test_the_default_encoder_takes_and_draws_what_its_page_says() -> None:
    encoder = EncoderConfig().encoder()
    assert encoder.cache.capacity_tokens == 65_536
    assert EncoderConfig().encoder() is not encoder
