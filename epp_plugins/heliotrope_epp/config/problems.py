"""Collects everything that is wrong with a configuration, so that a user sees it all at once."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from heliotrope.errors import InvalidInputError
from heliotrope_epp.plugins.parameters import StrictModel

Model = TypeVar("Model", bound=StrictModel)

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class Problems:
    """A list of (path, problem)."""

    def __init__(self) -> None:
        self._found: list[tuple[str, str]] = []

    def add(self, path: str, problem: str) -> None:
        """Note one."""
        self._found.append((path, problem))

    def __len__(self) -> int:
        return len(self._found)

    def raise_any(self) -> None:
        """Stop if there are any.

        Raises:
            InvalidInputError: with the path of the first problem; its text has a line for each.
        """
        if self._found:
            path, problem = self._found[0]
            others = [f"{p}: {text}" if p else text for p, text in self._found[1:]]
            raise InvalidInputError(path, "\n".join([problem, *others]))

    def decode(
        self,
        model: type[Model],
        data: Mapping[str, Any],
        at: str = "",
        elsewhere: Callable[[str], str | None] = lambda _key: None,
    ) -> Model | None:
        """The data as a model; None where it does not fit, with every reason noted.

        Args:
            model: what it should be.
            data: plain data as JSON has it.
            at: the path of the data in the file.
            elsewhere: says where an unknown key belongs, if it is known.
        """
        try:
            return model.model_validate_json(json.dumps(_without_nulls(model, data)))
        except ValidationError as error:
            for details in error.errors(include_url=False, include_input=True):
                self.add(key_path(at, details["loc"]), _reason(model, details, elsewhere))
            return None


def key_path(at: str, keys: Iterable[int | str]) -> str:
    """The path of a key as users write it: `plugins[0].parameters`."""
    path = at
    for key in keys:
        if isinstance(key, int):
            path += f"[{key}]"
        elif _PLAIN_KEY.fullmatch(key):
            path += f".{key}" if path else key
        else:
            path += f"[{json.dumps(key)}]"
    return path


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """A suggestion to append to a message; empty if nothing is near."""
    near = get_close_matches(wrong, list(known), n=1, cutoff=0.6) or [
        name for name in known if name.lower() == wrong.lower()
    ]
    return f"; did you mean {near[0]}?" if near else ""


def _reason(model: type[StrictModel], details: ErrorDetails, elsewhere: Callable[[str], str | None]) -> str:
    if details["type"] == "missing":
        return "is required"
    if details["type"] == "extra_forbidden":
        return _unknown_key(model, details["loc"], elsewhere)
    reason = details["msg"].removeprefix("Value error, ")
    reason = reason.replace("Input should be", "must be").replace("String should", "must")
    return reason if details["type"] == "value_error" else f"{reason}, not {_shown(details['input'])}"


def _unknown_key(model: type[StrictModel], keys: Sequence[int | str], elsewhere: Callable[[str], str | None]) -> str:
    owner, key = _model_at(model, keys[:-1]), str(keys[-1])
    if key in owner.unsupported:
        return "is llm-d's, but not supported by Heliotrope yet (docs/plugins.md); remove it"
    known = owner.key_names()
    hint = did_you_mean(key, known) or elsewhere(key)
    return f"unknown key{hint or _listed(known)}"


def _listed(known: Sequence[str]) -> str:
    return f"; known keys: {', '.join(known)}" if known else "; there are no keys here"


def _without_nulls(model: type[StrictModel] | None, data: Any) -> Any:
    """As in Go, a known key with null is as good as absent; an unknown one stays, to be reported."""
    if model is None:
        return data
    if isinstance(data, list):
        return [_without_nulls(model, item) for item in data]
    if not isinstance(data, Mapping):
        return data
    inner = {field.alias or name: _model_in(field.annotation) for name, field in model.model_fields.items()}
    return {
        key: _without_nulls(inner.get(key), value)
        for key, value in data.items()
        if value is not None or key not in inner
    }


def _model_at(model: type[StrictModel], keys: Sequence[int | str]) -> type[StrictModel]:
    for key in keys:
        if isinstance(key, int):
            continue
        field = next((f for name, f in model.model_fields.items() if key == (f.alias or name)), None)
        inner = None if field is None else _model_in(field.annotation)
        if inner is None:
            break
        model = inner
    return model


def _model_in(annotation: Any) -> type[StrictModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, StrictModel):
        return annotation
    found = (_model_in(part) for part in get_args(annotation))
    return next((inner for inner in found if inner is not None), None)


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."
