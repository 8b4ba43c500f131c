"""YAML (or JSON) text as the plain data that JSON can hold, with nothing lost on the way."""

import json
import re
from typing import Any

import yaml

from heliotrope.errors import InvalidInputError


def read_mapping(text: str) -> dict[str, Any]:
    """The mapping that a single YAML document holds; empty for an empty document.

    Raises:
        InvalidInputError: if the text is not YAML, not one mapping, or gives a key twice.
    """
    try:
        data = yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
        return _mapping(json.loads(json.dumps(data)))
    except yaml.MarkedYAMLError as error:
        where = "" if error.problem_mark is None else f"line {error.problem_mark.line + 1}"
        raise InvalidInputError(where, error.problem or str(error)) from error
    except yaml.YAMLError as error:
        raise InvalidInputError("", f"not YAML: {error}") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError("", f"not expressible in JSON: {error}") from error


def _mapping(data: object) -> dict[str, Any]:
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise InvalidInputError("", f"must be a mapping with apiVersion and kind, not {type(data).__name__}")
    return data


class _Loader(yaml.SafeLoader):
    """Refuses a key that comes twice, leaves dates the strings that they look like, and reads `1e-3` as Go does."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$"), list("-+.0123456789")
)


def _unique_keys(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen = set()
    for key_node, _ in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            continue
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str | int | float | bool):
            raise yaml.constructor.ConstructorError(None, None, "a key must be a string", key_node.start_mark)
        if key in seen:
            raise yaml.constructor.ConstructorError(None, None, f"the key {key} comes twice", key_node.start_mark)
        seen.add(key)
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique_keys)
