"""Reads Kubernetes documents into typed objects, with the checks that the API server would make."""

import json
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, Literal, TypeAlias

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from heliotrope.api.scalars import format_time
from heliotrope.api.struct import RULE_ERROR
from heliotrope.api.v1alpha1 import KINDS, CarbonPolicy, NodePower, RegionProfile, WorkloadVariant
from heliotrope.api.v1alpha1.common import API_VERSION
from heliotrope.errors import InvalidInputError

AnyResource: TypeAlias = RegionProfile | CarbonPolicy | WorkloadVariant | NodePower

_SHOWN_ERRORS = 5
_WORDS = {
    "extra_forbidden": "unknown field",
    "missing": "required",
    "string_type": "must be a string",
    "int_type": "must be an integer",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "dict_type": "must be an object",
}


def parse(document: Mapping[str, Any], *, unknown_fields: Literal["forbid", "ignore"] = "forbid") -> AnyResource:
    """The typed object of a document, defaults filled in.

    Nulls count as absent, as they do for `kubectl apply`.

    Args:
        document: a whole object with apiVersion, kind, metadata and spec.
        unknown_fields: "ignore" for objects from an API server, whose CRDs may be newer than this program.

    Raises:
        InvalidInputError: the path of the first bad field, what is wrong there, and what else is.
    """
    api_version, kind = document.get("apiVersion"), document.get("kind")
    if api_version != API_VERSION:
        raise InvalidInputError("apiVersion", f"is {api_version!r}; must be {API_VERSION}")
    if kind not in KINDS:
        raise InvalidInputError("kind", f"is {kind!r}; must be one of {', '.join(KINDS)}")
    text = json.dumps(_without_nulls(document), default=_jsonable)
    own_rule = None  # every type forbids unknown fields but metadata, which is the API server's business
    extra = own_rule if unknown_fields == "forbid" else unknown_fields
    try:
        return KINDS[kind].model_validate_json(text, strict=True, by_alias=True, by_name=False, extra=extra)
    except ValidationError as error:
        raise _invalid_input(error.errors(include_url=False, include_input=True)) from None


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [_without_nulls(each) for each in value]
    return value


def _jsonable(value: Any) -> str:
    """YAML readers turn unquoted times into objects; the API server sees their text."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return format_time(value)
    if isinstance(value, date):
        return value.isoformat()
    raise InvalidInputError("", f"a document cannot hold {value!r} of type {type(value).__name__}")


def _invalid_input(errors: list[ErrorDetails]) -> InvalidInputError:
    found = [(_path(error), _problem(error)) for error in errors]
    (path, problem), *others = found
    if others:
        shown = "; ".join(f"{each}: {why}" for each, why in others[: _SHOWN_ERRORS - 1])
        hidden = len(others) - (_SHOWN_ERRORS - 1)
        problem = f"{problem}; {shown}" + (f"; and {hidden} more" if hidden > 0 else "")
    return InvalidInputError(path, problem)


def _path(error: ErrorDetails) -> str:
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"]]
    if error["type"] == RULE_ERROR and error["ctx"]["field"]:
        parts.append(f".{error['ctx']['field']}")
    return "".join(parts).removeprefix(".")


def _problem(error: ErrorDetails) -> str:
    if error["type"] in _WORDS:
        return _WORDS[error["type"]]
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == RULE_ERROR or not isinstance(error["input"], str | int | float | bool):
        return message
    return f"{message} (is {error['input']!r})"
