"""Generates the CustomResourceDefinitions from the pydantic types.

What pydantic writes as JSON schema becomes a structural schema: no `$ref`, no null, no floats, and a bound on every
list, map, string and integer, because the API server prices CEL rules by them. A type that cannot be written so is a
programming error and stops the generator.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from heliotrope.api.v1alpha1 import KINDS
from heliotrope.api.v1alpha1.common import CATEGORY, GROUP, VERSION, Resource

Schema = dict[str, Any]

HEADER = "# Generated from core/heliotrope/api; run `make generate` after changing it.\n"

_COPIED = (
    "type",
    "format",
    "pattern",
    "enum",
    "default",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "required",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
)
_DROPPED = ("title", "description", "properties", "items", "additionalProperties", "prefixItems", "const")
_INT32_MAX = 2**31 - 1
_EXACT_INTEGER_MAX = 2**53


def render() -> dict[str, str]:
    """The CRDs as YAML text by file name."""
    return {
        f"{GROUP}_{kind.definition.plural}.yaml": HEADER
        + yaml.dump(definition(kind), Dumper=_NoAliases, sort_keys=False, width=120, allow_unicode=True)
        for kind in KINDS.values()
    }


def definition(kind: type[Resource]) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind of resource."""
    about = kind.definition
    names = {
        "kind": kind.__name__,
        "listKind": f"{kind.__name__}List",
        "plural": about.plural,
        "singular": kind.__name__.lower(),
        "shortNames": [about.short_name],
        "categories": [CATEGORY],
    }
    columns = [
        {"name": each.name, "type": each.type, "jsonPath": each.path, "description": each.description}
        | ({"priority": each.priority} if each.priority else {})
        for each in about.columns
    ]
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": schema(kind)},
    }
    labels = {"app.kubernetes.io/part-of": "heliotrope", **about.labels}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{about.plural}.{GROUP}", "labels": labels},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced" if about.namespaced else "Cluster",
            "names": names,
            "versions": [version],
        },
    }


def schema(kind: type[Resource]) -> Schema:
    """The structural schema of a kind of resource."""
    generated = kind.model_json_schema(by_alias=True, mode="validation")
    generated["properties"] |= {
        "apiVersion": {"type": "string", "description": "Version of the API.", "maxLength": 317},
        "kind": {"type": "string", "description": "Kind of the object.", "maxLength": 63},
        "metadata": {"type": "object", "description": "Standard metadata."},
    }
    generated["required"] = ["spec"] if "spec" in generated.get("required", ()) else []
    structural = _Structural(generated.pop("$defs", {}), kind.__name__).convert(generated, ())
    for name in ("apiVersion", "kind"):
        del structural["properties"][name]["maxLength"]
    del structural["properties"]["metadata"]["description"]  # the API server describes it, and refuses ours
    return structural


def nodes(root: Schema, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Schema]]:
    """Every schema within a structural schema, with its path; list items are `[]`, map values `{}`."""
    yield path, root
    for name, child in root.get("properties", {}).items():
        yield from nodes(child, (*path, name))
    if "items" in root:
        yield from nodes(root["items"], (*path, "[]"))
    if "additionalProperties" in root:
        yield from nodes(root["additionalProperties"], (*path, "{}"))


class _NoAliases(yaml.SafeDumper):
    """Writes a list that occurs twice twice; YAML anchors are hard to read and review."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is PyYAML's
        return True


class _Structural:
    def __init__(self, definitions: Mapping[str, Schema], kind: str) -> None:
        self._definitions = definitions
        self._kind = kind

    def convert(self, source: Schema, path: tuple[str, ...]) -> Schema:
        source = self._resolved(source)
        unknown = source.keys() - {*_COPIED, *_DROPPED}
        if unknown:
            raise self._error(path, f"cannot be written in a structural schema: {', '.join(sorted(unknown))}")
        result: Schema = {}
        if source.get("description"):
            result["description"] = " ".join(source["description"].split())
        result |= {key: source[key] for key in _COPIED if key in source}
        match result.get("type"):
            case "object":
                self._object(source, result, path)
            case "array":
                self._array(source, result, path)
            case "string":
                if "const" in source:
                    result["enum"] = [source["const"]]
                if not {"maxLength", "enum", "format"} & result.keys():
                    raise self._error(path, "needs a largest length")
            case "integer":
                if not {"minimum", "maximum"} <= result.keys():
                    raise self._error(path, "needs bounds")
                if result["maximum"] > _EXACT_INTEGER_MAX:
                    raise self._error(path, "has a bound that the API server, which compares as float64, cannot hold")
                result["format"] = "int32" if result["maximum"] <= _INT32_MAX else "int64"
            case "boolean":
                pass
            case other:
                raise self._error(path, f"has the type {other!r}")
        return result

    def _resolved(self, source: Schema) -> Schema:
        """Put definitions in the place of references, and optional values in the place of `anyOf` with null."""
        while True:
            if "$ref" in source:
                name = source["$ref"].rpartition("/")[2]
                source = self._definitions[name] | {key: value for key, value in source.items() if key != "$ref"}
            elif "anyOf" in source:
                choices = [choice for choice in source["anyOf"] if choice != {"type": "null"}]
                if len(choices) != 1:
                    return source
                source = choices[0] | {key: value for key, value in source.items() if key != "anyOf"}
            else:
                return source

    def _object(self, source: Schema, result: Schema, path: tuple[str, ...]) -> None:
        if not result.get("required", True):
            del result["required"]
        values = source.get("additionalProperties")
        if isinstance(values, dict):
            if "maxProperties" not in source:
                raise self._error(path, "needs a largest number of entries")
            result["additionalProperties"] = self.convert(values, (*path, "{}"))
        properties = source.get("properties", {})
        if properties:
            result["properties"] = {}
        for name, child in properties.items():
            result["properties"][name] = self.convert(child, (*path, name))
            if "description" not in result["properties"][name]:
                raise self._error((*path, name), "needs a docstring")

    def _array(self, source: Schema, result: Schema, path: tuple[str, ...]) -> None:
        if "maxItems" not in source:
            raise self._error(path, "needs a largest length")
        result.setdefault("x-kubernetes-list-type", "atomic")
        items = source.get("items") or source["prefixItems"][0]
        result["items"] = self.convert(items, (*path, "[]"))

    def _error(self, path: tuple[str, ...], problem: str) -> TypeError:
        return TypeError(f"{self._kind}.{'.'.join(path)} {problem}")
