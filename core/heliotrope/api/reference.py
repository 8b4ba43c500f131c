"""Writes docs/resources-reference.md: every field of the resources, with its type, default and bounds.

python -m heliotrope.api.reference > docs/resources-reference.md
"""

import json
import sys
from collections.abc import Iterator

from heliotrope.api import crd
from heliotrope.api.scalars import DECIMAL_PATTERN, DURATION_PATTERN
from heliotrope.api.v1alpha1 import KINDS
from heliotrope.api.v1alpha1.common import API_VERSION, Resource

_HEAD = f"""# Fields of the resources

Generated from `core/heliotrope/api`; run `make generate` after changing it. How to use them is in
[resources.md](resources.md). All are of `{API_VERSION}`. A field in **bold** is required where its parent is set.
Decimal strings are numbers in quotes, without sign or exponent, such as `"0.25"`; durations are as in GEP-2257, such as
`1h30m` or `250ms`.
"""


def render() -> str:
    """The reference as Markdown."""
    return "\n".join([_HEAD, *(line for kind in KINDS.values() for line in _kind(kind))]) + "\n"


def _kind(kind: type[Resource]) -> Iterator[str]:
    about, schema = kind.definition, crd.schema(kind)
    scope = "namespaced" if about.namespaced else "cluster-scoped"
    yield f"## {kind.__name__}"
    yield ""
    yield f"{schema['description']} Short name `{about.short_name}`, {scope}."
    for part in ("spec", "status"):
        yield ""
        yield f"| {part} | type | default | meaning |"
        yield "|---|---|---|---|"
        yield from _rows(schema["properties"][part], part, part)
    yield ""
    yield "Rules, beside the bounds above:"
    yield ""
    yield from _rules(schema)
    yield ""


def _rows(schema: crd.Schema, prefix: str, part: str) -> Iterator[str]:
    required = schema.get("required", ())
    for name, child in schema.get("properties", {}).items():
        path = f"{prefix}.{name}".removeprefix(f"{part}.")
        shown = f"**`{path}`**" if name in required else f"`{path}`"
        default = f"`{json.dumps(child['default'], ensure_ascii=False)}`" if _has_plain_default(child) else ""
        yield f"| {shown} | {_type(child)} | {default} | {_escaped(child['description'])} |"
        holder, suffix = (child["items"], "[]") if child["type"] == "array" else (child, "")
        yield from _rows(holder, f"{prefix}.{name}{suffix}", part)


def _has_plain_default(schema: crd.Schema) -> bool:
    """Objects' defaults are those of their fields, which follow below; an empty list is no default worth a word."""
    return schema["type"] != "object" and schema.get("default") not in (None, [])


def _type(schema: crd.Schema) -> str:
    match schema["type"]:
        case "array":
            keys = schema.get("x-kubernetes-list-map-keys")
            unique = f", one per {' + '.join(keys)}" if keys else ""
            return f"list of {_type(schema['items'])}, at most {schema['maxItems']}{unique}"
        case "object":
            return f"map of at most {schema['maxProperties']}" if "additionalProperties" in schema else "object"
        case "integer":
            return f"integer {schema['minimum']} to {schema['maximum']}"
        case "boolean":
            return "boolean"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("format") == "date-time":
        return "RFC 3339 time"
    named = {DECIMAL_PATTERN: "decimal string", DURATION_PATTERN: "duration"}
    bounds = [rule["message"].removeprefix("must be ") for rule in schema.get("x-kubernetes-validations", ())]
    return " ".join([named.get(schema.get("pattern", ""), "string"), *bounds])


def _rules(schema: crd.Schema) -> Iterator[str]:
    for path, node in crd.nodes(schema):
        if node["type"] == "object":
            for rule in node.get("x-kubernetes-validations", ()):
                place = ".".join(path).replace(".[]", "[]") + rule.get("fieldPath", "")
                yield f"- `{place}`: {_escaped(rule['message'])}"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(render())
