"""The scheduling profiles and their handler, from references to built plugins."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from heliotrope_epp.config.defaults import DEFAULT_SCORER_WEIGHT
from heliotrope_epp.config.instances import Instance, Instances
from heliotrope_epp.config.problems import did_you_mean
from heliotrope_epp.config.schema import SchedulingPlugin, SchedulingProfile
from heliotrope_epp.plugins.context import PluginContext
from heliotrope_epp.plugins.kinds import PluginKind
from heliotrope_epp.plugins.pickers.carbon import CarbonPicker
from heliotrope_epp.plugins.pickers.max_score import MAX_SCORE_PICKER
from heliotrope_epp.plugins.pickers.ranking import PickerParameters
from heliotrope_epp.plugins.producers.approx_prefix_cache import APPROX_PREFIX_CACHE_PRODUCER
from heliotrope_epp.plugins.profile import NamedFilter, Profile, Scheduling, WeightedScorer
from heliotrope_epp.plugins.profilehandlers.disagg import (
    DISAGG_PROFILE_HANDLER,
    DisaggProfileHandlerParameters,
)
from heliotrope_epp.plugins.profilehandlers.single import SINGLE_PROFILE_HANDLER


@dataclass(slots=True)
class ResolvedProfile:
    """A profile whose references have been found."""

    name: str
    filters: list[Instance] = field(default_factory=list)
    scorers: list[tuple[Instance, float]] = field(default_factory=list)
    picker: Instance | None = None


@dataclass(frozen=True, slots=True)
class ResolvedScheduling:
    """All of them, and what the pipeline needs beside them."""

    profiles: tuple[ResolvedProfile, ...]
    handler: Instance | None
    producers: tuple[Instance, ...]
    producers_always: bool


def resolve_scheduling(profiles: Sequence[SchedulingProfile], instances: Instances) -> ResolvedScheduling:
    """Find what the profiles name, and add what they leave out."""
    producers = instances.of_kind(PluginKind.PRODUCER)
    always = bool(producers)
    if not always:
        producers = [instances.add_default(APPROX_PREFIX_CACHE_PRODUCER, "plugins")]
    _check_producers(producers, instances)
    resolved = tuple(_resolve(profile, f"schedulingProfiles[{i}]", instances) for i, profile in enumerate(profiles))
    seen: set[str] = set()
    for i, profile in enumerate(profiles):
        if profile.name in seen:
            instances.problems.add(f"schedulingProfiles[{i}].name", f"the name {profile.name} comes twice")
        seen.add(profile.name)
    return ResolvedScheduling(resolved, _handler(profiles, instances), tuple(producers), always)


def build_scheduling(resolved: ResolvedScheduling, instances: Instances, context: PluginContext) -> Scheduling:
    """Build every plugin; nothing may be wrong any more.

    Raises:
        InvalidInputError: if a plugin's factory refuses.
    """
    context = instances.build_all(context)
    assert resolved.handler is not None
    return Scheduling(
        profiles=tuple(_build(profile, instances, context) for profile in resolved.profiles),
        handler=instances.built(resolved.handler),
        producers=tuple(instances.built(producer) for producer in resolved.producers),
        producers_always=resolved.producers_always,
    )


def _resolve(profile: SchedulingProfile, path: str, instances: Instances) -> ResolvedProfile:
    resolved = ResolvedProfile(profile.name)
    for i, entry in enumerate(profile.plugins):
        _place(entry, f"{path}.plugins[{i}]", resolved, instances)
    if resolved.picker is None:
        declared = instances.of_kind(PluginKind.PICKER)
        resolved.picker = declared[0] if declared else instances.add_default(MAX_SCORE_PICKER, path)
    return resolved


def _place(entry: SchedulingPlugin, path: str, resolved: ResolvedProfile, instances: Instances) -> None:
    instance = instances.resolve(entry.plugin_ref, tuple(PluginKind), f"{path}.pluginRef")
    if instance is None:
        return
    kind = instance.plugin.kind
    if entry.weight is not None and kind is not PluginKind.SCORER:
        instances.warnings.append(f"{path}.weight is ignored, as {instance.name} is a {kind}")
    if kind is PluginKind.SCORER:
        weight = DEFAULT_SCORER_WEIGHT if entry.weight is None else entry.weight
        resolved.scorers.append((instance, weight))
    elif kind is PluginKind.FILTER:
        resolved.filters.append(instance)
    elif kind is not PluginKind.PICKER:
        instances.warnings.append(f"{path} is ignored, as a {kind} has no place in a profile")
    elif resolved.picker is not None:
        instances.problems.add(
            f"{path}.pluginRef", f"the profile has the picker {resolved.picker.name} already; keep one of them"
        )
    else:
        resolved.picker = instance


def _handler(profiles: Sequence[SchedulingProfile], instances: Instances) -> Instance | None:
    handlers = instances.of_kind(PluginKind.PROFILE_HANDLER)
    for surplus in handlers[1:]:
        instances.problems.add(surplus.path, f"a second profile handler beside {handlers[0].name}; keep one of them")
    if handlers and handlers[0].plugin.name == DISAGG_PROFILE_HANDLER:
        _check_disaggregation(handlers[0], profiles, instances)
        return handlers[0]
    if not handlers and len(profiles) == 1:
        return instances.add_default(SINGLE_PROFILE_HANDLER, "plugins")
    if len(profiles) > 1 and (not handlers or handlers[0].plugin.name == SINGLE_PROFILE_HANDLER):
        instances.problems.add(
            "schedulingProfiles[1]", "several profiles need a profile handler that chooses among them; keep one profile"
        )
    return handlers[0] if handlers else None


def _check_disaggregation(handler: Instance, profiles: Sequence[SchedulingProfile], instances: Instances) -> None:
    """The profiles that the handler runs must exist; one that it never runs is of no use."""
    parameters = handler.parameters
    assert isinstance(parameters, DisaggProfileHandlerParameters)
    names = [profile.name for profile in profiles]
    wanted = {
        "decode": parameters.decode_profile,
        "prefill": parameters.prefill_profile,
        "encode": parameters.encode_profile,
    }
    for role, name in wanted.items():
        if name is not None and name not in names:
            instances.problems.add(
                f"{handler.path}.parameters.profiles.{role}", f"there is no profile {name}{did_you_mean(name, names)}"
            )
    for i, name in enumerate(names):
        if name not in wanted.values():
            instances.warnings.append(f"schedulingProfiles[{i}] is ignored, as {handler.name} never runs {name}")


def _check_producers(producers: Sequence[Instance], instances: Instances) -> None:
    if len(producers) < 2:
        return
    for kind in PluginKind:
        for instance in instances.of_kind(kind):
            for path, named_kind, _ in instance.references():
                if named_kind is PluginKind.PRODUCER:
                    instances.problems.add(
                        path, "choosing among several producers is not supported by Heliotrope yet; declare one"
                    )


def _build(profile: ResolvedProfile, instances: Instances, context: PluginContext) -> Profile:
    assert profile.picker is not None
    picker = instances.built(profile.picker)
    if isinstance(picker, CarbonPicker):
        carbon_picker = picker
    else:
        given = profile.picker.parameters
        parameters = given if isinstance(given, PickerParameters) else PickerParameters()
        carbon_picker = CarbonPicker(
            parameters,
            context.carbon,
            context.random,
            context.models,
            gate=context.gate,
            embeddings=context.embeddings,
        )
    return Profile(
        name=profile.name,
        filters=tuple(NamedFilter(instance.name, instances.built(instance)) for instance in profile.filters),
        scorers=tuple(
            WeightedScorer(instances.built(instance), weight, instance.name, instance.plugin.name)
            for instance, weight in profile.scorers
        ),
        picker=picker,
        picker_name=profile.picker.name,
        carbon_picker=carbon_picker,
    )
