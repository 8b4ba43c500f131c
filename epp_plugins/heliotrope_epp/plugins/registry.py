"""Which plugin types exist. A registry is an object that is passed on, so that tests and users can have their own."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from heliotrope.errors import InvalidInputError
from heliotrope_epp.plugins.context import PluginContext
from heliotrope_epp.plugins.kinds import PluginKind, Stability
from heliotrope_epp.plugins.parameters import StrictModel

Parameters = TypeVar("Parameters", bound=StrictModel)

_TYPE_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


_METHODS: Mapping[PluginKind, tuple[str, ...]] = {
    PluginKind.FILTER: ("filter",),
    PluginKind.SCORER: ("score",),
    PluginKind.PICKER: ("pick",),
    PluginKind.PROFILE_HANDLER: ("profiles", "primary"),
    PluginKind.DECIDER: ("prefills_elsewhere",),
    PluginKind.ENCODE_DECIDER: ("encodes_elsewhere",),
    PluginKind.PRODUCER: ("cached_tokens", "routed", "forget"),
}


@dataclass(frozen=True, slots=True)
class PluginType:
    """One entry of a registry."""

    name: str
    kind: PluginKind
    parameters: type[StrictModel]
    factory: Callable[[Any, PluginContext], object]
    stability: Stability
    requires: tuple[str, ...] = ()
    """Types of producers that must exist; they are built with their defaults when the configuration has none."""
    replaced_by: str | None = None
    """Set for a deprecated type: the one to use instead."""
    stands_for: tuple[str, ...] = ()
    """Types of producers whose place it takes: where it is declared they need not exist."""

    def build(self, parameters: StrictModel, context: PluginContext) -> Any:
        """An instance.

        Raises:
            InvalidInputError: if the factory returns something that its slot cannot use.
        """
        plugin = self.factory(parameters, context)
        for method in _METHODS.get(self.kind, ()):
            if not callable(getattr(plugin, method, None)):
                raise InvalidInputError(
                    self.name, f"its factory built {type(plugin).__name__}, which has no {method}()"
                )
        return plugin


class PluginRegistry:
    """Plugin types by name."""

    def __init__(self) -> None:
        self._types: dict[str, PluginType] = {}

    def register(
        self,
        type_name: str,
        kind: PluginKind,
        parameters: type[Parameters],
        factory: Callable[[Parameters, PluginContext], object],
        stability: Stability,
        *,
        requires: tuple[str, ...] = (),
        replaced_by: str | None = None,
        stands_for: tuple[str, ...] = (),
    ) -> None:
        """Add a type.

        Args:
            type_name: what the configuration writes under `type`.
            kind: its slot.
            parameters: what its `parameters` are decoded to.
            factory: builds an instance; called once per entry of the configuration, at start.
            stability: said in the documentation and, for Alpha, in a warning at start.
            requires: types of producers that it needs.
            replaced_by: marks the type as deprecated.
            stands_for: types of producers that whoever needs them can do without beside it.

        Raises:
            InvalidInputError: if the name is taken or not in lower-case-with-dashes.
        """
        if not _TYPE_NAME.fullmatch(type_name):
            raise InvalidInputError(type_name, "a plugin type is named in lower case with dashes, as in 'queue-scorer'")
        if type_name in self._types:
            raise InvalidInputError(type_name, "this plugin type is registered already; choose another name")
        self._types[type_name] = PluginType(
            type_name, kind, parameters, factory, stability, requires, replaced_by, stands_for
        )

    def find(self, type_name: str) -> PluginType | None:
        """The type of this name, None if there is none."""
        return self._types.get(type_name)

    def __iter__(self) -> Iterator[PluginType]:
        """All types, sorted by name."""
        return iter([self._types[name] for name in sorted(self._types)])

    def __len__(self) -> int:
        return len(self._types)
