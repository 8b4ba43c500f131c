"""What kind of task a prompt is, from counts alone.

| class | rule, the first that holds |
|---|---|
| `code` | two code fences or more, or at least 4 % of the bytes are `{ } ; = < > ( ) [ ]` |
| `numbers` | at least 10 % of the bytes are digits |
| `long` | at least 8,192 bytes |
| `chat` | everything else |

It is deterministic, needs no words of any language, and reads at most `SAMPLE_BYTES`: the prompt's end, where the last
question stands. A prompt of token numbers has no text to count and is `tokens`.
"""

CODE, NUMBERS, LONG, CHAT, TOKENS = "code", "numbers", "long", "chat", "tokens"
SAMPLE_BYTES = 4_096
LONG_BYTES = 8_192
CODE_FENCES = 2
CODE_SHARE = 0.04
DIGIT_SHARE = 0.1

_SYMBOLS = b"{};=<>()[]"
_DIGITS = b"0123456789"


def task_class(prompt: bytes, *, token_ids: bool = False) -> str:
    """The class of a prompt.

    Args:
        prompt: its text in UTF-8.
        token_ids: whether it holds numbers of tokens instead.
    """
    if token_ids:
        return TOKENS
    sample = prompt[-SAMPLE_BYTES:]
    size = max(len(sample), 1)
    symbols = size - len(sample.translate(None, _SYMBOLS)) if sample else 0
    if sample.count(b"```") >= CODE_FENCES or symbols >= CODE_SHARE * size:
        return CODE
    digits = len(sample) - len(sample.translate(None, _DIGITS))
    if digits >= DIGIT_SHARE * size:
        return NUMBERS
    return LONG if len(prompt) >= LONG_BYTES else CHAT
