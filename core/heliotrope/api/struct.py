"""The base of every API type, and validation rules that hold in the API server and in Python alike.

A rule is a method of the struct that owns the fields. Its decorator carries the CEL twin, which goes into the CRD, and
the message that a user reads whichever side refuses:

    @rule("self.minMhz <= self.maxMhz", "minMhz must not exceed maxMhz", field="minMhz")
    def _ordered(self) -> bool:
        return self.min_mhz <= self.max_mhz
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

RULE_ERROR = "rule"
"""The error type under which pydantic reports a broken rule; its context holds the field."""

Predicate = TypeVar("Predicate", bound=Callable[[Any], bool])


def camel(name: str) -> str:
    """The JSON name of an attribute: `grams_co2e` is `gramsCo2e`."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


@dataclass(frozen=True, slots=True)
class Rule:
    """One validation rule of a struct, in CEL and in Python."""

    cel: str
    message: str
    field: str
    """JSON name of the field that the message is about; empty for the struct itself."""
    holds: Callable[[Any], bool]

    def to_schema(self) -> dict[str, str]:
        """The entry of `x-kubernetes-validations`."""
        entry = {"rule": self.cel, "message": self.message}
        return entry | ({"fieldPath": f".{self.field}"} if self.field else {})


def rule(cel: str, message: str, *, field: str = "") -> Callable[[Predicate], Predicate]:
    """Declare a method as the Python twin of a CEL rule over `self`."""

    def declare(holds: Predicate) -> Predicate:
        setattr(holds, _MARK, Rule(cel, message, field, holds))
        return holds

    return declare


_MARK = "__heliotrope_rule__"


class Struct(BaseModel):
    """A frozen object of the API: snake_case attributes, camelCase in documents, nothing unknown.

    Attribute docstrings are the descriptions that `kubectl explain` shows.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=camel,
        validate_by_alias=True,
        validate_by_name=True,
        use_attribute_docstrings=True,
    )

    rules: ClassVar[tuple[Rule, ...]] = ()

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        own = (getattr(value, _MARK, None) for value in vars(cls).values())
        cls.rules = cls.rules + tuple(found for found in own if found is not None)

    @model_validator(mode="after")
    def _keep_rules(self) -> Self:
        for each in self.rules:
            if not each.holds(self):
                raise PydanticCustomError(RULE_ERROR, "{message}", {"message": each.message, "field": each.field})
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        reference = handler(core_schema)
        schema = handler.resolve_ref_schema(reference)
        schema["description"] = cls.__doc__ or ""
        for name, field in cls.model_fields.items():
            if not field.is_required():
                _set_default(schema["properties"][camel(name)], cls._default(name))
        if cls.rules:
            schema["x-kubernetes-validations"] = [each.to_schema() for each in cls.rules]
        return reference

    @classmethod
    def _default(cls, name: str) -> Any:
        """The default as a document spells it, in full as rules are checked on it; None when the field is absent."""
        value = cls.model_fields[name].get_default(call_default_factory=True)
        holder = cls.model_construct(**{name: value})
        return holder.model_dump(mode="json", by_alias=True, exclude_none=True, include={name}).get(camel(name))


def _set_default(schema: JsonSchemaValue, default: Any) -> None:
    schema.pop("default", None)
    if default is not None:
        schema["default"] = default
