"""How the API server merges and checks lists: a set of scalars, or objects told apart by some of their fields."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from heliotrope.api.struct import camel


@dataclass(frozen=True, slots=True)
class ListSet:
    """Annotates a tuple of scalars: no value twice; server-side apply merges by value."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(_unique, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(schema) | {"x-kubernetes-list-type": "set"}


class ListMap:
    """Annotates a tuple of structs: no two with equal keys; server-side apply merges by key.

    Keys are attribute names; each must be required or have a default.
    """

    def __init__(self, *keys: str) -> None:
        self.keys = keys

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._unique_keys, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(schema) | {
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": [camel(key) for key in self.keys],
        }

    def _unique_keys(self, items: tuple[Any, ...]) -> tuple[Any, ...]:
        _unique([tuple(getattr(item, key) for key in self.keys) for item in items])
        return items


def _unique(items: Sequence[Any]) -> Any:
    for position, item in enumerate(items):
        if item in items[:position]:
            label = ", ".join(map(str, item)) if isinstance(item, tuple) else item
            raise ValueError(f"duplicate value: {label}")
    return items
