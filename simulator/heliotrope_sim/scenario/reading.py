"""From YAML to a checked scenario; every mistake is told with its key."""

import json
from collections.abc import Hashable, Iterator, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from heliotrope.errors import InvalidInputError
from heliotrope_sim.scenario.files import Files
from heliotrope_sim.scenario.model import Scenario

MOST_BYTES = 1024 * 1024
SHOWN_ERRORS = 5
_WORDS = {
    "extra_forbidden": "unknown key",
    "missing": "required",
    "string_type": "must be a string; put it in quotes",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "finite_number": "must be a finite number",
    "union_tag_not_found": "required: poisson, diurnal, azure, mooncake or trace",
}
_TAGS = frozenset({"poisson", "diurnal", "azure", "mooncake", "trace"})


def read(path: Path) -> tuple[Mapping[str, Any], Files]:
    """A scenario file as plain data, and the way to the files that it names. `scenario_of` checks it.

    Raises:
        InvalidInputError: if it cannot be read, is not YAML, or a key occurs twice; names file and line.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InvalidInputError(str(path), f"is larger than {MOST_BYTES} bytes")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(str(path), f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(str(path), f"is not UTF-8: {error.reason} at byte {error.start}") from error
    return parse(text, path.name), Files(path.parent)


def parse(text: str, source: str) -> Mapping[str, Any]:
    """The mapping of a scenario's text.

    Raises:
        InvalidInputError: as `read`.
    """
    try:
        data = yaml.load(text, _Loader)  # noqa: S506 - a safe loader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = source if mark is None else f"{source}:{mark.line + 1}"
        raise InvalidInputError(where, f"is not YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInputError(source, f"is not YAML: {error}") from error
    if not isinstance(data, Mapping):
        raise InvalidInputError(source, "must be a mapping; docs/simulate.md has one")
    return data


def scenario_of(data: Mapping[str, Any]) -> Scenario:
    """The scenario of plain data, defaults filled in.

    Raises:
        InvalidInputError: the path of the first bad key, what is wrong there, and what else is.
    """
    text = json.dumps(data, default=_jsonable)
    try:
        return Scenario.model_validate_json(text)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=True)
    (path, problem), *others = [(_path(each), _problem(each)) for each in found]
    if others:
        shown = "; ".join(f"{each}: {why}" for each, why in others[: SHOWN_ERRORS - 1])
        hidden = len(others) - (SHOWN_ERRORS - 1)
        problem = f"{problem}; {shown}" + (f"; and {hidden} more" if hidden > 0 else "")
    raise InvalidInputError(path, problem)


def file_names(scenario: Scenario) -> Iterator[str]:
    """What the scenario itself names; RegionProfiles may name more."""
    yield from scenario.region_files
    yield from (r.intensity.csv for r in scenario.regions if r.intensity is not None and r.intensity.csv is not None)
    yield from (site.engine for site in scenario.sites if site.engine.endswith(".json"))
    yield from (policy.file for policy in scenario.policies if policy.file is not None)
    file = getattr(scenario.workload, "file", None)
    if file is not None:
        yield file


def schema() -> str:
    """The JSON schema of a scenario, for editors."""
    return json.dumps(Scenario.model_json_schema(), indent=1, ensure_ascii=False) + "\n"


def _jsonable(value: Any) -> str:
    if isinstance(value, date | datetime):
        return value.isoformat()
    raise InvalidInputError("", f"a scenario cannot hold {value!r} of type {type(value).__name__}")


def _path(error: ErrorDetails) -> str:
    # The tag of a union is in the location, but not in the file.
    head, *rest = error["loc"] or ("",)
    location = [head, *(part for part in rest if head != "workload" or part not in _TAGS)]
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in location]
    if error["type"] == "union_tag_not_found":
        parts.append(".kind")
    return "".join(parts).removeprefix(".")


def _problem(error: ErrorDetails) -> str:
    if error["type"] in _WORDS:
        return _WORDS[error["type"]]
    message = error["msg"].removeprefix("Value error, ")
    return message if not isinstance(error["input"], str | int | float | bool) else f"{message} (is {error['input']!r})"


class _Loader(yaml.SafeLoader):
    """Refuses keys that occur twice, of which one would be lost."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = key_node.value
            if key in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key!r} occurs twice", problem_mark=key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)
