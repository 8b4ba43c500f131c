"""The entries of `plugins`, by name: checked first, built once."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from heliotrope.errors import InvalidInputError
from heliotrope_epp.config.features import UNSUPPORTED_TYPES
from heliotrope_epp.config.problems import Problems, did_you_mean, key_path
from heliotrope_epp.config.schema import PluginSpec
from heliotrope_epp.plugins.context import PluginContext
from heliotrope_epp.plugins.kinds import PluginKind, Stability
from heliotrope_epp.plugins.parameters import Reference, StrictModel
from heliotrope_epp.plugins.registry import PluginRegistry, PluginType


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """An entry that can be built."""

    name: str
    plugin: PluginType
    parameters: StrictModel
    path: str
    """Where it stands in the file; what was added by default stands nowhere and has the path of its reason."""

    def references(self) -> list[tuple[str, PluginKind, str]]:
        """The path, kind and name of each plugin that its parameters name."""
        return list(_references(self.parameters, key_path(self.path, ("parameters",))))


def _references(parameters: StrictModel, at: str) -> Iterator[tuple[str, PluginKind, str]]:
    for name, info in type(parameters).model_fields.items():
        value, path = getattr(parameters, name), key_path(at, (info.alias or name,))
        if isinstance(value, StrictModel):
            yield from _references(value, path)
        for marker in info.metadata:
            if isinstance(marker, Reference) and value:
                yield path, marker.kind, str(value)


@dataclass(slots=True)
class Instances:
    """Adds entries, finds them by reference, and builds them. What is wrong goes to `problems`."""

    registry: PluginRegistry
    problems: Problems
    warnings: list[str] = field(default_factory=list)
    _by_name: dict[str, Instance] = field(default_factory=dict)
    _faulty: set[str] = field(default_factory=set)
    _built: dict[str, Any] = field(default_factory=dict)

    def declare(self, specs: Sequence[PluginSpec]) -> None:
        """Check and add the entries of the file, and the producers that they need."""
        for i, spec in enumerate(specs):
            self._declare(spec, f"plugins[{i}]")
        for instance in list(self._by_name.values()):
            self._add_required(instance)

    def resolve(self, ref: str, kinds: Collection[PluginKind], path: str, *, create: bool = False) -> Instance | None:
        """The entry that a reference names; None, with a problem noted, if there is none of these kinds.

        Args:
            ref: the name.
            kinds: what it may be.
            path: of the reference.
            create: whether the name of a type does without an entry, as llm-d allows for parsers.
        """
        instance = self._by_name.get(ref)
        plugin = self.registry.find(ref)
        if instance is None and create and plugin is not None and plugin.kind in kinds:
            instance = self.add_default(ref, path)
        if instance is None:
            if ref not in self._faulty:
                self.problems.add(path, self._dangling(ref, kinds, create=create))
            return None
        if instance.plugin.kind not in kinds:
            wanted = " or ".join(sorted(kinds))
            self.problems.add(path, f"{ref} is a {instance.plugin.kind}, where a {wanted} is needed")
            return None
        return instance

    def add_default(self, type_name: str, path: str) -> Instance:
        """An entry of a registered type with its default parameters."""
        plugin = self.registry.find(type_name)
        if plugin is None:
            raise InvalidInputError(path, f"needs the plugin type {type_name}, which is not registered")
        name = type_name
        while name in self._by_name or name in self._faulty:
            name += "-default"
        instance = self._by_name[name] = Instance(name, plugin, plugin.parameters(), path)
        return instance

    def of_kind(self, kind: PluginKind) -> list[Instance]:
        """All entries of a kind, in order."""
        return [instance for instance in self._by_name.values() if instance.plugin.kind is kind]

    def build_all(self, context: PluginContext) -> PluginContext:
        """Build every entry, producers and deciders first.

        Returns:
            The context with the producers, as the other plugins were given it.

        Raises:
            InvalidInputError: if a factory refuses its parameters; the path is that of the entry.
        """
        producers = self.of_kind(PluginKind.PRODUCER)
        for instance in producers:
            self._built[instance.name] = _build(instance, context)
        context = replace(context, producers={p.plugin.name: self._built[p.name] for p in reversed(producers)})
        for instance in self.of_kind(PluginKind.DECIDER):
            self._built[instance.name] = _build(instance, context)
        deciders = {decider.name: self._built[decider.name] for decider in self.of_kind(PluginKind.DECIDER)}
        for instance in self.of_kind(PluginKind.ENCODE_DECIDER):
            self._built[instance.name] = _build(instance, context)
        encoding = {decider.name: self._built[decider.name] for decider in self.of_kind(PluginKind.ENCODE_DECIDER)}
        context = replace(context, deciders=deciders, encode_deciders=encoding)
        for instance in self._by_name.values():
            if instance.name not in self._built:
                self._built[instance.name] = _build(instance, context)
        return context

    def built(self, instance: Instance) -> Any:
        """The plugin of an entry, once all are built."""
        return self._built[instance.name]

    def _declare(self, spec: PluginSpec, path: str) -> None:
        name = spec.name or spec.type
        if name in self._by_name or name in self._faulty:
            at = f"{path}.name" if spec.name else path
            self.problems.add(at, f"the name {name} is taken by an entry above; give each entry a name of its own")
            return
        plugin = self.registry.find(spec.type)
        if plugin is None:
            self._faulty.add(name)
            self.problems.add(f"{path}.type", self._unknown_type(spec.type))
            return
        parameters = self.problems.decode(plugin.parameters, spec.parameters, f"{path}.parameters", self._owner)
        if parameters is None:
            self._faulty.add(name)
            return
        self._by_name[name] = Instance(name, plugin, parameters, path)
        if plugin.replaced_by is not None:
            self.warnings.append(f"{path}.type: {plugin.name} is deprecated; use {plugin.replaced_by}")
        if plugin.stability is Stability.ALPHA:
            self.warnings.append(f"{path}.type: {plugin.name} is experimental ({plugin.stability})")

    def _add_required(self, instance: Instance) -> None:
        named = set()
        for path, kind, ref in instance.references():
            found = self.resolve(ref, (kind,), path)
            if found is not None:
                named.add(found.plugin.kind)
        if PluginKind.PRODUCER in named:
            return
        for type_name in instance.plugin.requires:
            present = (other.plugin for other in self._by_name.values())
            if not any(type_name in (plugin.name, *plugin.stands_for) for plugin in present):
                self.add_default(type_name, instance.path)

    def _unknown_type(self, type_name: str) -> str:
        if type_name in UNSUPPORTED_TYPES:
            return f"{type_name} is llm-d's, but not supported by Heliotrope yet (docs/plugins.md)"
        names = [plugin.name for plugin in self.registry]
        hint = did_you_mean(type_name, names) or "; known types: " + ", ".join(names)
        return f"unknown plugin type {type_name}{hint}"

    def _dangling(self, ref: str, kinds: Collection[PluginKind], *, create: bool) -> str:
        if create and ref in UNSUPPORTED_TYPES:
            return self._unknown_type(ref)
        names = [name for name, instance in self._by_name.items() if instance.plugin.kind in kinds]
        if create:
            names += [plugin.name for plugin in self.registry if plugin.kind in kinds]
        return f"no entry of plugins has the name {ref}{did_you_mean(ref, names)}"

    def _owner(self, key: str) -> str | None:
        """Says whose parameter a key is, as many have moved from a scorer to its producer."""
        owners = [plugin.name for plugin in self.registry if key in plugin.parameters.key_names()]
        return f"; it is a parameter of {' and '.join(owners)}" if owners else None


def _build(instance: Instance, context: PluginContext) -> Any:
    try:
        return instance.plugin.build(instance.parameters, context)
    except InvalidInputError as error:
        raise InvalidInputError(instance.path, str(error)) from error
