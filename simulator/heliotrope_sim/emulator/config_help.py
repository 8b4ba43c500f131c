"""The keys of a configuration, for people: names, defaults, meanings."""

from collections.abc import Iterator
from typing import get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo


def keys_of(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Every key of a model and those below it, as (path, default, meaning); a meaning may be empty."""
    for name, field in model.model_fields.items():
        yield prefix + name, _default(field), (field.description or "").replace("\n", " ")
        for below in _models(field.annotation):
            yield from keys_of(below, f"{prefix}{name}.")


def help_text(model: type[BaseModel]) -> str:
    """The keys as a list in Markdown."""
    lines = [
        f"- **{path}** ({default}){': ' + meaning if meaning else ''}" for path, default, meaning in keys_of(model)
    ]
    return "Keys of an engine (default):\n\n" + "\n".join(lines)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    if default is None:
        return "none"
    if isinstance(default, BaseModel):
        return "as below"
    return str(default)


def _models(annotation: object) -> list[type[BaseModel]]:
    """The models that a field may hold."""
    return [t for t in (annotation, *get_args(annotation)) if isinstance(t, type) and issubclass(t, BaseModel)]
