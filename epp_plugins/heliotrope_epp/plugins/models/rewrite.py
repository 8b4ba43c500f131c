"""A body that names another model, everything else in it as it was."""

import msgspec

from heliotrope.predict.reasoning import Effort, Reasoning

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_REASONING_FIELDS = ("reasoning", "thinking_token_budget", "custom_params", "chat_template_kwargs")


def rewritten(body: bytes, model: str, effort: Effort | None = None) -> bytes:
    """The body with this model and, if given, this `reasoning_effort`.

    The values of all other fields stay byte for byte, and so does the fields' order. Of a field that stands twice the
    last stays, which is the one that engines read.
    """
    fields = _FIELDS.decode(body)
    fields["model"] = msgspec.Raw(msgspec.json.encode(model))
    if effort is not None:
        fields["reasoning_effort"] = msgspec.Raw(msgspec.json.encode(effort.name.lower()))
    return msgspec.json.encode(fields)


def effort_is_free(body: bytes, reasoning: Reasoning) -> bool:
    """Whether `reasoning_effort` alone decides how long a chat request reasons, so that it can be lowered."""
    if reasoning.budget_tokens is not None:
        return False
    fields = _FIELDS.decode(body)
    if "messages" not in fields or any(name in fields for name in _REASONING_FIELDS):
        return False
    stated = fields.get("reasoning_effort")
    return (stated is None or bytes(stated) == b"null") == (reasoning.effort is None)
