"""What is known of the cluster: typed objects with the lookups that controllers need.

Watch events and resyncs feed it; it answers which objects a change touches. It holds no request and no clock. Which
kinds it remembers, and what of each, say the specs that it is made of (`heliotrope_operator.kinds`).
"""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from heliotrope.api.v1alpha1 import CarbonPolicy, RegionProfile, WorkloadVariant
from heliotrope_operator.kinds.namespaces import Namespace
from heliotrope_operator.kinds.nodes import Node
from heliotrope_operator.kinds.pods import Pod
from heliotrope_operator.kinds.pools import Pool
from heliotrope_operator.kinds.spec import Document, KindSpec, Table, Unreadable
from heliotrope_operator.kinds.targets import ScaleTarget
from heliotrope_operator.resources import Key, Kind


class Cluster:
    """All objects of the remembered kinds, as last seen."""

    def __init__(self, specs: Iterable[KindSpec[Any]]) -> None:
        """Remember the kinds of these specs."""
        self.specs: dict[Kind, KindSpec[Any]] = {spec.kind: spec for spec in specs}
        self._versions: dict[Key, tuple[str | None, str]] = {}
        self._tables: dict[Kind, Table[Any]] = {kind: spec.table() for kind, spec in self.specs.items()}
        self.served: dict[Kind, bool] = {}
        """Whether the API server serves a kind, where that is known."""
        self.regions: Table[RegionProfile] = self.table(Kind.REGION_PROFILE)
        self.policies: Table[CarbonPolicy] = self.table(Kind.CARBON_POLICY)
        self.variants: Table[WorkloadVariant] = self.table(Kind.WORKLOAD_VARIANT)
        self.pools: Table[Pool] = self.table(Kind.INFERENCE_POOL)
        self.unreadable: Table[Unreadable] = Table()
        self._pools_changed = 0
        """How often a pool has come, gone or changed."""
        self._pools_of: dict[Key, tuple[int, tuple[tuple[str, str], ...], list[Key]]] = {}
        """By variant: as of which change, for which selector, which pools. Every pass over the fleet asks."""

    def table(self, kind: Kind) -> Table[Any]:
        """The objects of a kind; an empty table for one that is not watched, whose indexes cannot be asked."""
        return self._tables[kind] if kind in self._tables else Table()

    @property
    def namespaces(self) -> Table[Namespace]:
        """Namespaces, where a part that is switched on asks for them."""
        return self.table(Kind.NAMESPACE)

    @property
    def nodes(self) -> Table[Node]:
        """Nodes, in the same way."""
        return self.table(Kind.NODE)

    @property
    def pods(self) -> Table[Pod]:
        """Pods, in the same way."""
        return self.table(Kind.POD)

    def keys(self, kind: Kind | None = None) -> list[Key]:
        """Every object known, or those of a kind."""
        return [key for key in self._versions if kind is None or key.kind is kind]

    def reconciled(self) -> list[Key]:
        """Every object known that is reconciled itself."""
        return [key for key in self._versions if self.specs[key.kind].reconciled]

    def version(self, key: Key) -> str:
        """The resourceVersion that is known of an object; empty if none is."""
        return self._versions.get(key, (None, ""))[1]

    def observe(self, kind: Kind, document: Document) -> set[Key]:
        """Take in an object. Returns the keys that the change touches; none if nothing is new."""
        spec, metadata = self.specs[kind], document["metadata"]
        key = Key(kind, metadata.get("namespace") or "", metadata["name"])
        version = (metadata.get("uid"), metadata.get("resourceVersion") or "")
        self.served[kind] = True
        if not _is_news(self._versions.get(key), version):
            return set()
        self._versions[key] = version
        table = self._tables[kind]
        before, after = table.get(key), spec.read(key, document)
        unreadable = after if isinstance(after, Unreadable) else None
        value = None if unreadable is not None else after
        if value is not None and value == before:
            return set()
        was_unreadable = self.unreadable.get(key) is not None
        touched = spec.dependents(self, key, before, value)
        self.unreadable.put(key, unreadable)
        table.put(key, value)
        self._pools_changed += kind is Kind.INFERENCE_POOL
        touched |= spec.dependents(self, key, before, value)
        if spec.reconciled or was_unreadable or unreadable is not None:
            touched.add(key)
        return touched

    def forget(self, key: Key, uid: str | None = None) -> set[Key]:
        """Drop an object that is gone; with a uid, only that one and not a newer of its name.

        Returns the keys that this touches.
        """
        if key not in self._versions or uid not in (None, self._versions[key][0]):
            return set()
        spec, table = self.specs[key.kind], self._tables[key.kind]
        before = table.get(key)
        del self._versions[key]
        touched = spec.dependents(self, key, before, None)
        self.unreadable.put(key, None)
        table.put(key, None)
        self._pools_changed += key.kind is Kind.INFERENCE_POOL
        self._pools_of.pop(key, None)
        touched |= spec.dependents(self, key, before, None)
        return touched | {key} if spec.reconciled else touched

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

    def policies_of(self, variant: Key, value: WorkloadVariant | None) -> set[Key]:
        """Policies on pools that can hold a variant's pods."""
        touched: set[Key] = set()
        if value is None:
            return touched
        for key in self.pools.by("namespace", variant.namespace):
            pool = self.pools.get(key)
            if pool is not None and pool.may_hold(value.spec.endpoint_selector.match_labels):
                touched |= self.policies.by("pool", key)
        return touched

    def variants_selecting(self, namespace: str, labels: Mapping[str, str]) -> set[Key]:
        """Variants whose selector a pod with these labels meets."""
        found: set[Key] = set()
        for shape in self.variants.distinct("shape"):
            of, names = cast("tuple[str, frozenset[str]]", shape)
            if of != namespace or not names <= labels.keys():
                continue
            sets = [self.variants.by("label", (of, names, (name, labels[name]))) for name in names]
            found |= frozenset.intersection(*sets) if sets else self.variants.by("shape", shape)
        return found

    def pods_of(self, variant: Key) -> list[tuple[Key, Pod]]:
        """Pods that a variant selects, in the order of their names."""
        known = self.variants.get(variant)
        if known is None or Kind.POD not in self.specs:
            return []
        labels = known.spec.endpoint_selector.match_labels.items()
        sets = [self.pods.by("label", (variant.namespace, label)) for label in labels]
        keys = frozenset.intersection(*sets) if sets else frozenset()
        return [(key, pod) for key in sorted(keys) if (pod := self.pods.get(key)) is not None]

    def pools_of(self, variant: Key) -> list[Key]:
        """Pools that can hold a variant's pods, in the order of their names."""
        known = self.variants.get(variant)
        if known is None:
            self._pools_of.pop(variant, None)
            return []
        selects = tuple(known.spec.endpoint_selector.match_labels.items())
        remembered = self._pools_of.get(variant)
        if remembered is None or remembered[:2] != (self._pools_changed, selects):
            remembered = self._pools_changed, selects, self._holding(variant, known)
            self._pools_of[variant] = remembered
        return remembered[2]

    def _holding(self, variant: Key, known: WorkloadVariant) -> list[Key]:
        pools = [(key, self.pools.get(key)) for key in sorted(self.pools.by("namespace", variant.namespace))]
        selector = known.spec.endpoint_selector.match_labels
        return [key for key, pool in pools if pool is not None and pool.may_hold(selector)]

    def governing(self, variant: Key) -> tuple[Key, CarbonPolicy] | None:
        """The pool of a variant and the policy that holds there; the first pool by name that has one."""
        for pool in self.pools_of(variant):
            if (policy := self.winner(pool)) is not None:
                return pool, policy
        return None


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
