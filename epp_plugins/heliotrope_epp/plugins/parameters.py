"""The base of everything that is decoded from an `EndpointPickerConfig`: nothing unknown, nothing converted."""

from dataclasses import dataclass
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from heliotrope.api.struct import camel
from heliotrope_epp.plugins.kinds import PluginKind


class StrictModel(BaseModel):
    """A frozen object with camelCase keys. Values must have their JSON type already."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=camel,
        validate_by_alias=True,
        validate_by_name=False,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
    )

    unsupported: ClassVar[frozenset[str]] = frozenset()
    """Keys that llm-d has here and Heliotrope has not; they are refused by name."""

    @classmethod
    def key_names(cls) -> tuple[str, ...]:
        """The keys of the object as documents write them, in the order of declaration."""
        return tuple(field.alias or name for name, field in cls.model_fields.items())


class NoParameters(StrictModel):
    """For plugins that take none."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Marks a parameter (`Annotated[str | None, Reference(…)]`) that names another plugin of the configuration."""

    kind: PluginKind
