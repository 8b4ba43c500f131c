"""The smallest JSON merge patch (RFC 7386) that turns one document into another."""

from collections.abc import Mapping
from typing import Any


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """What to send; empty if nothing differs. Lists are replaced whole, null removes a field."""
    patch: dict[str, Any] = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if name in old and before == value:
            continue
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            patch[name] = merge_patch(before, value)
        else:
            patch[name] = value
    return patch
