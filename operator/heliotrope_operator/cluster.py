"""What is known of the cluster: typed objects with the lookups that controllers need.

Watch events and resyncs feed it; it answers which objects a change touches. It holds no request and no clock.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from heliotrope.api import documents
from heliotrope.api.v1alpha1 import CarbonPolicy, RegionProfile, WorkloadVariant
from heliotrope.api.v1alpha1.common import AFFECTED_MARKER, ObjectMeta
from heliotrope.errors import InvalidInputError
from heliotrope_operator.resources import Key, Kind

T = TypeVar("T")

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pool:
    """The part of an InferencePool that matters here."""

    metadata: ObjectMeta
    match_labels: tuple[tuple[str, str], ...]

    @property
    def marker(self) -> str | None:
        """The affected-marker; None without one."""
        return self.metadata.annotations.get(AFFECTED_MARKER)

    def may_hold(self, selector: Mapping[str, str]) -> bool:
        """Whether a pod with these labels can be in the pool: no label is asked for with two values."""
        return all(selector.get(name, value) == value for name, value in self.match_labels)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An object of ours that this program cannot read, its CRD being older or newer."""

    metadata: ObjectMeta
    problem: str
    status: Document
    """As it is; perhaps as unreadable as the rest."""


Known = RegionProfile | CarbonPolicy | WorkloadVariant | Pool | Unreadable


@dataclass(frozen=True, slots=True)
class ScaleTarget:
    """An object that a variant scales; versions of one group are the same object."""

    namespace: str
    group: str
    kind: str
    name: str


class Table(Generic[T]):
    """Values by key, and sets of keys by what an index says of each value."""

    def __init__(self, **indexes: Callable[[Key, T], Iterable[Hashable]]) -> None:
        self._values: dict[Key, T] = {}
        self._indexes = indexes
        self._entries: dict[str, dict[Hashable, set[Key]]] = {name: {} for name in indexes}

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._values)

    def get(self, key: Key) -> T | None:
        """The value of a key."""
        return self._values.get(key)

    def values(self) -> list[T]:
        """All values."""
        return list(self._values.values())

    def by(self, index: str, of: Hashable) -> frozenset[Key]:
        """Keys whose value has this in an index."""
        return frozenset(self._entries[index].get(of, ()))

    def distinct(self, index: str) -> list[Hashable]:
        """Everything that values have in an index."""
        return list(self._entries[index])

    def put(self, key: Key, value: T | None) -> None:
        """Set a value; None removes it."""
        before = self._values.pop(key, None)
        if before is not None:
            for name, index in self._indexes.items():
                for of in index(key, before):
                    members = self._entries[name][of]
                    members.discard(key)
                    if not members:
                        del self._entries[name][of]
        if value is not None:
            self._values[key] = value
            for name, index in self._indexes.items():
                for of in index(key, value):
                    self._entries[name].setdefault(of, set()).add(key)


class Cluster:
    """All objects of the reconciled kinds, as last seen."""

    def __init__(self) -> None:
        self._versions: dict[Key, tuple[str | None, str]] = {}
        self.served: dict[Kind, bool] = {}
        """Whether the API server serves a kind, where that is known."""
        self.regions: Table[RegionProfile] = Table()
        self.policies: Table[CarbonPolicy] = Table(
            pool=lambda key, policy: [pool_key(key.namespace, ref.name) for ref in policy.spec.target_refs]
        )
        self.variants: Table[WorkloadVariant] = Table(
            region=lambda _, variant: [] if variant.spec.region_ref is None else [variant.spec.region_ref.name],
            target=lambda key, variant: [] if (target := scale_target(key, variant)) is None else [target],
            shape=lambda key, variant: [_shape(key, variant)],
            label=lambda key, variant: [
                (*_shape(key, variant), label) for label in variant.spec.endpoint_selector.match_labels.items()
            ],
        )
        self.pools: Table[Pool] = Table(namespace=lambda key, _: [key.namespace])
        self.unreadable: Table[Unreadable] = Table()

    def keys(self, kind: Kind | None = None) -> list[Key]:
        """Every object known, or those of a kind."""
        return [key for key in self._versions if kind is None or key.kind is kind]

    def version(self, key: Key) -> str:
        """The resourceVersion that is known of an object; empty if none is."""
        return self._versions.get(key, (None, ""))[1]

    def observe(self, kind: Kind, document: Document) -> set[Key]:
        """Take in an object. Returns the keys that the change touches; none if nothing is new."""
        metadata = ObjectMeta.model_validate(document["metadata"])
        key = Key(kind, metadata.namespace or "", metadata.name)
        version = (metadata.uid, metadata.resource_version or "")
        self.served[kind] = True
        if not _is_news(self._versions.get(key), version):
            return set()
        before = self._get(key)
        self._versions[key] = version
        after = _read(kind, metadata, document)
        touched = self._dependents(key, before, after)
        self._put(key, after)
        return touched | self._dependents(key, before, after)

    def forget(self, key: Key, uid: str | None = None) -> set[Key]:
        """Drop an object that is gone; with a uid, only that one and not a newer of its name.

        Returns the keys that this touches.
        """
        if key not in self._versions or uid not in (None, self._versions[key][0]):
            return set()
        before = self._get(key)
        del self._versions[key]
        touched = self._dependents(key, before, None)
        self._put(key, None)
        return touched

    def winner(self, pool: Key) -> CarbonPolicy | None:
        """The policy that holds on a pool: the oldest, ties go by namespace and name."""
        claims = [policy for key in self.policies.by("pool", pool) if (policy := self.policies.get(key)) is not None]
        return min(claims, key=seniority, default=None)

    def owner(self, target: ScaleTarget) -> WorkloadVariant | None:
        """The variant that may scale a target: the oldest, ties go by namespace and name."""
        claims = [each for key in self.variants.by("target", target) if (each := self.variants.get(key)) is not None]
        return min(claims, key=seniority, default=None)

    def variants_of(self, pool: Key) -> set[Key]:
        """Variants whose pods can be in a pool, as `Pool.may_hold` says; found by label, not one by one."""
        found: set[Key] = set()
        known = self.pools.get(pool)
        for shape in self.variants.distinct("shape") if known is not None else ():
            namespace, names = cast("tuple[str, frozenset[str]]", shape)
            if known is None or namespace != pool.namespace:
                continue
            asked = [label for label in known.match_labels if label[0] in names]
            sets = [self.variants.by("label", (namespace, names, label)) for label in asked]
            found |= frozenset.intersection(*sets) if sets else self.variants.by("shape", shape)
        return found

    def _policies_of(self, variant: Key, value: Known | None) -> set[Key]:
        """Policies on pools that can hold a variant's pods."""
        touched: set[Key] = set()
        if not isinstance(value, WorkloadVariant):
            return touched
        for key in self.pools.by("namespace", variant.namespace):
            pool = self.pools.get(key)
            if pool is not None and pool.may_hold(value.spec.endpoint_selector.match_labels):
                touched |= self.policies.by("pool", key)
        return touched

    def _put(self, key: Key, value: Known | None) -> None:
        self.unreadable.put(key, value if isinstance(value, Unreadable) else None)
        match key.kind:
            case Kind.REGION_PROFILE:
                self.regions.put(key, value if isinstance(value, RegionProfile) else None)
            case Kind.CARBON_POLICY:
                self.policies.put(key, value if isinstance(value, CarbonPolicy) else None)
            case Kind.WORKLOAD_VARIANT:
                self.variants.put(key, value if isinstance(value, WorkloadVariant) else None)
            case Kind.INFERENCE_POOL:
                self.pools.put(key, value if isinstance(value, Pool) else None)
            case Kind.HEARTBEAT:
                raise ValueError("the heartbeat is no object")

    def _get(self, key: Key) -> Known | None:
        match key.kind:
            case Kind.REGION_PROFILE:
                return self.regions.get(key)
            case Kind.CARBON_POLICY:
                return self.policies.get(key)
            case Kind.WORKLOAD_VARIANT:
                return self.variants.get(key)
            case Kind.INFERENCE_POOL:
                return self.pools.get(key)
            case Kind.HEARTBEAT:
                return None

    def _dependents(self, key: Key, before: Known | None, after: Known | None) -> set[Key]:
        """The object itself and those whose state depends on what has changed of it."""
        match key.kind:
            case Kind.REGION_PROFILE:
                return {key} | self._depend_on_region(key, _region_facts(before), _region_facts(after))
            case Kind.CARBON_POLICY:
                return {key} | self._depend_on_policy(key, before, after)
            case Kind.WORKLOAD_VARIANT:
                return {key} | self._depend_on_variant(key, before, after)
            case Kind.INFERENCE_POOL:
                same = (
                    isinstance(before, Pool) and isinstance(after, Pool) and before.match_labels == after.match_labels
                )
                return {key} if same else {key, *self.policies.by("pool", key)}
            case Kind.HEARTBEAT:
                return set()

    def _depend_on_region(self, key: Key, before: Hashable, after: Hashable) -> set[Key]:
        """Policies need to know how fresh it is and of what kind; variants only whether it exists."""
        if before == after:
            return set()
        variants = self.variants.by("region", key.name)
        policies: set[Key] = set()
        for variant in variants:
            policies |= self._policies_of(variant, self.variants.get(variant))
        return policies if before is not None and after is not None else policies | variants

    def _depend_on_policy(self, key: Key, before: Known | None, after: Known | None) -> set[Key]:
        """Its pools carry its name, and other policies may win or lose them."""
        if _policy_facts(before) == _policy_facts(after):
            return set()
        touched: set[Key] = set()
        for policy in (before, after):
            for ref in policy.spec.target_refs if isinstance(policy, CarbonPolicy) else ():
                pool = pool_key(key.namespace, ref.name)
                touched.update((pool, *self.policies.by("pool", pool)))
        return touched

    def _depend_on_variant(self, key: Key, before: Known | None, after: Known | None) -> set[Key]:
        """Other variants may win or lose its target; policies reach its region."""
        touched: set[Key] = set()
        targets = [
            scale_target(key, variant) if isinstance(variant, WorkloadVariant) else None for variant in (before, after)
        ]
        if targets[0] != targets[1]:
            touched.update(*(self.variants.by("target", target) for target in targets if target is not None))
        if _reach(before) != _reach(after):
            touched |= self._policies_of(key, before) | self._policies_of(key, after)
        return touched


def _shape(key: Key, variant: WorkloadVariant) -> tuple[str, frozenset[str]]:
    """Namespace and names of the labels that a variant selects by; few differ."""
    return key.namespace, frozenset(variant.spec.endpoint_selector.match_labels)


def _region_facts(region: Known | None) -> Hashable:
    if not isinstance(region, RegionProfile):
        return None
    return (region.spec.signal, None if region.status is None else region.status.freshness)


def _policy_facts(policy: Known | None) -> Hashable:
    if not isinstance(policy, CarbonPolicy):
        return None
    return (policy.metadata.uid, policy.spec.enforcement, policy.spec.target_refs)


def _reach(variant: Known | None) -> Hashable:
    if not isinstance(variant, WorkloadVariant):
        return None
    return (variant.spec.region_ref, tuple(sorted(variant.spec.endpoint_selector.match_labels.items())))


def pool_key(namespace: str, name: str) -> Key:
    """The key of an InferencePool."""
    return Key(Kind.INFERENCE_POOL, namespace, name)


def region_key(name: str) -> Key:
    """The key of a RegionProfile."""
    return Key(Kind.REGION_PROFILE, "", name)


def scale_target(key: Key, variant: WorkloadVariant) -> ScaleTarget | None:
    """What a variant scales; None if nothing."""
    ref = variant.spec.scale_target_ref
    if ref is None:
        return None
    group, separator, _ = ref.api_version.partition("/")
    return ScaleTarget(key.namespace, group if separator else "", ref.kind, ref.name)


def seniority(resource: CarbonPolicy | WorkloadVariant) -> tuple[bool, float, str, str]:
    """Orders claims: the first holds. An object without a creation time comes last."""
    metadata = resource.metadata
    created = metadata.creation_timestamp
    return (
        created is None,
        0.0 if created is None else created.timestamp(),
        metadata.namespace or "",
        metadata.name,
    )


def _is_news(known: tuple[str | None, str] | None, version: tuple[str | None, str]) -> bool:
    """Whether a version is another and not an older one of the same object: lists and watches may overtake each other.

    Versions are compared as the numbers that every API server gives; anything else counts as news.
    """
    if known is None or known[0] != version[0]:
        return True
    before, now = known[1], version[1]
    if before.isdecimal() and now.isdecimal():
        return int(now) > int(before)
    return before != now


def _read(kind: Kind, metadata: ObjectMeta, document: Document) -> Known:
    if kind is Kind.INFERENCE_POOL:
        labels = document.get("spec", {}).get("selector", {}).get("matchLabels", {})
        return Pool(metadata, tuple(sorted(labels.items())))
    # The rest of the metadata, who manages which field above all, is larger than many an object.
    whole = {**document, "metadata": metadata.model_dump(by_alias=True, exclude_none=True, mode="json")}
    for readable in (whole, {name: value for name, value in whole.items() if name != "status"}):
        try:
            found = documents.parse(readable, unknown_fields="ignore")
        except InvalidInputError as error:
            problem = str(error)
            continue
        assert isinstance(found, RegionProfile | CarbonPolicy | WorkloadVariant), "the kinds that are watched"
        return found
    return Unreadable(metadata, problem, document.get("status", {}))
