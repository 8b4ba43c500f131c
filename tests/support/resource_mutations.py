"""Documents that break exactly one structural constraint of the schemas: every constraint at every place."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.support.resource_documents import REMOVED, Document, changed, full_documents, value_at

from heliotrope.api import crd
from heliotrope.api.v1alpha1 import KINDS


@dataclass(frozen=True)
class Mutation:
    """One broken document."""

    field: str
    """Path of the field that is wrong."""
    what: str
    document: Document

    def __str__(self) -> str:
        return f"{self.document['kind']} {self.field}: {self.what}"


def mutations() -> Iterator[Mutation]:
    """All mutations of all kinds."""
    for name, kind in KINDS.items():
        documents = full_documents()[name]
        for path, schema in crd.nodes(crd.schema(kind)):
            if not path or path[0] not in {"spec", "status"}:
                continue
            field, document = _placed(path, documents)
            for place, what, value in _broken(schema, field, value_at(document, field)):
                yield Mutation(place, what, changed(document, {place: value}))


def _placed(path: tuple[str, ...], documents: tuple[Document, ...]) -> tuple[str, Document]:
    """The place in a document that a schema speaks of, in the first document that has it."""
    for document in documents:
        try:
            return _field(path, document), document
        except (KeyError, IndexError):
            continue
    raise AssertionError(f"no document sets {'.'.join(path)}")


def _field(path: tuple[str, ...], document: Document) -> str:
    field = ""
    for step in path:
        if step == "[]":
            field += "[0]"
        elif step == "{}":
            field += f".{next(iter(value_at(document, field)))}"
        else:
            field += f".{step}" if field else step
        value_at(document, field)
    return field


def _broken(schema: crd.Schema, field: str, value: Any) -> Iterator[tuple[str, str, Any]]:
    """Place, constraint and value of each way to break a schema."""
    wrong_type = {"string": 7, "integer": "7", "boolean": "true", "object": "text", "array": "text"}
    yield field, "wrong type", wrong_type[schema["type"]]
    match schema["type"]:
        case "object":
            yield from _broken_object(schema, field, value)
        case "array":
            yield from _broken_array(schema, field, value)
        case "integer":
            yield field, "minimum", schema["minimum"] - 1
            yield field, "maximum", schema["maximum"] + 1
            yield field, "fraction", schema["minimum"] + 0.5
        case "string":
            if "enum" in schema:
                yield field, "enum", "Nonsense"
            if "maxLength" in schema:
                yield field, "maxLength", "1" * (schema["maxLength"] + 1)
            if schema.get("minLength"):
                yield field, "minLength", ""
            if "pattern" in schema:
                yield field, "pattern", "-\n-"
            if schema.get("format") == "date-time":
                yield from ((field, "format", text) for text in ("yesterday", "2022-06-01", "2022-06-01T00:00:00"))


def _broken_object(schema: crd.Schema, field: str, value: Any) -> Iterator[tuple[str, str, Any]]:
    for name in schema.get("required", ()):
        yield f"{field}.{name}", "required", REMOVED
    if "properties" in schema:
        yield f"{field}.nonsense", "unknown field", "x"
    if "maxProperties" in schema:
        yield field, "maxProperties", {f"label-{number}": "x" for number in range(schema["maxProperties"] + 1)}
    if schema.get("minProperties"):
        yield field, "minProperties", {}


def _broken_array(schema: crd.Schema, field: str, value: Any) -> Iterator[tuple[str, str, Any]]:
    if schema.get("minItems"):
        yield field, "minItems", value[: schema["minItems"] - 1]
    yield field, "maxItems", [value[0]] * (schema["maxItems"] + 1)
    if schema["x-kubernetes-list-type"] in {"map", "set"}:
        yield field, "duplicate", [*value, value[0]]
