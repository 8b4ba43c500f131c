"""The size of a picture from the first bytes of its file."""

import struct

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8\xff"
# Start of frame: every marker from C0 to CF but the tables C4, C8 and CC.
_START_OF_FRAME = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_WITHOUT_LENGTH = frozenset(range(0xD0, 0xDA)) | {0x01}
# As far as its size reaches.
_EXTENDED_WEBP_BYTES = 30

Size = tuple[int, int]


def size(data: bytes) -> Size | None:
    """Width and height in pixels of a PNG, JPEG, GIF or WebP; None if it is none of them or says nothing."""
    try:
        found = _size(data)
    except (struct.error, IndexError):
        return None
    return found if found is not None and min(found) > 0 else None


def _size(data: bytes) -> Size | None:
    if data.startswith(_PNG):
        width, height = struct.unpack_from(">II", data, 16)
        return int(width), int(height)
    if data.startswith((b"GIF87a", b"GIF89a")):
        width, height = struct.unpack_from("<HH", data, 6)
        return int(width), int(height)
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return _webp(data)
    if data.startswith(_JPEG):
        return _jpeg(data)
    return None


def _webp(data: bytes) -> Size | None:
    kind = data[12:16]
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8X" and len(data) >= _EXTENDED_WEBP_BYTES:
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    return None


def _jpeg(data: bytes) -> Size | None:
    at = 2
    while at < len(data):
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker == 0xFF:
            at += 1
        elif marker in _WITHOUT_LENGTH:
            at += 2
        elif marker in _START_OF_FRAME:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return int(width), int(height)
        else:
            (length,) = struct.unpack_from(">H", data, at + 2)
            at += 2 + length
    return None
