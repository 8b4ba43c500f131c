"""What a hub publishes: an administrator's budgets of regions, shared out over the clusters that are planned together.

Each member gets what it needs as far as its fair share goes; what members leave of theirs goes to those that need more;
what nobody needs is shared out, too, so that load may rise before the next plan. A member that has not told its needs,
or not for long, keeps its fair share: unknown is not zero. The shares of a budget never add up to more than it.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from heliotrope.errors import InvalidInputError
from heliotrope.scale.ceilings import MAX_BYTES, SCHEMA, Ceiling, ceiling_document

Model = TypeVar("Model", bound=BaseModel)

MAX_MEMBERS = 256
MAX_ROWS = 1_024


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Budget(_Strict):
    """What all members together may use in a region."""

    region: str = Field(min_length=1, max_length=253)
    accelerator: str | None = Field(default=None, min_length=1, max_length=253)
    """Type of accelerator; absent: all types together."""
    accelerators: int | None = Field(default=None, ge=0, le=1_000_000_000)
    watts: int | None = Field(default=None, ge=0, le=1_000_000_000)

    @model_validator(mode="after")
    def _limits(self) -> "Budget":
        if self.accelerators is None and self.watts is None:
            raise ValueError("needs accelerators or watts")
        return self


class Member(_Strict):
    """A cluster that pulls ceilings."""

    name: str = Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    weight: int = Field(default=1, ge=1, le=1_000_000)
    """Its fair share is in proportion to it."""
    regions: tuple[str, ...] | None = Field(default=None, max_length=MAX_ROWS, strict=False)
    """Regions that it is in; absent: all."""


class HubPlan(_Strict):
    """The administrator's file."""

    schema_: int = Field(alias="schema", ge=SCHEMA, le=SCHEMA)
    members: tuple[Member, ...] = Field(min_length=1, max_length=MAX_MEMBERS, strict=False)
    budgets: tuple[Budget, ...] = Field(max_length=MAX_ROWS, strict=False)

    @model_validator(mode="after")
    def _unique(self) -> "HubPlan":
        names = [member.name for member in self.members]
        if len(set(names)) < len(names):
            raise ValueError("two members have the same name")
        rows = [(budget.region, budget.accelerator) for budget in self.budgets]
        if len(set(rows)) < len(rows):
            raise ValueError("two budgets are of the same region and accelerator")
        return self

    def member(self, name: str) -> Member | None:
        """A member by name."""
        return next((each for each in self.members if each.name == name), None)


class Need(_Strict):
    """What a member would use in a region if nothing limited it."""

    region: str = Field(min_length=1, max_length=253)
    accelerator: str | None = Field(default=None, max_length=253)
    accelerators: int | None = Field(default=None, ge=0, le=1_000_000_000)
    watts: int | None = Field(default=None, ge=0, le=1_000_000_000)


class Summary(_Strict):
    """What a member tells the hub."""

    schema_: int = Field(alias="schema", ge=SCHEMA, le=SCHEMA)
    needs: tuple[Need, ...] = Field(max_length=MAX_ROWS, strict=False)

    def accelerators(self, region: str, accelerator: str | None) -> int | None:
        """Accelerators that it needs in a region, of a type or of all; None if it says nothing of one of them."""
        found = [
            each.accelerators
            for each in self.needs
            if each.region == region and accelerator in (None, each.accelerator)
        ]
        known = [each for each in found if each is not None]
        return sum(known) if len(known) == len(found) else None

    def watts(self, region: str) -> int | None:
        """Watts that it needs in a region; None if it says nothing of some."""
        found = [each.watts for each in self.needs if each.region == region]
        known = [each for each in found if each is not None]
        return sum(known) if len(known) == len(found) else None


def parse_plan(document: object) -> HubPlan:
    """Read the administrator's file.

    Raises:
        InvalidInputError: naming the field that is wrong.
    """
    return _validated(HubPlan, document)


def parse_summary(body: bytes) -> Summary:
    """Read what a member tells.

    Raises:
        InvalidInputError: naming the field that is wrong.
    """
    if len(body) > MAX_BYTES:
        raise InvalidInputError("", f"the summary is larger than {MAX_BYTES} bytes")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidInputError("", "the summary is not JSON") from None
    return _validated(Summary, document)


@dataclass(frozen=True, slots=True)
class Claim:
    """A member's claim on a budget."""

    weight: int
    need: int | None
    """None: it is not known, and counts as the whole fair share."""


def split(budget: int, claims: Sequence[Claim]) -> list[int]:
    """Share a budget out: needs within fair shares first, then needs beyond them, then what is left by weight.

    Args:
        budget: whole units, at least 0.
        claims: of the members.

    Returns:
        Whole units per claim; they add up to the budget, or to 0 without claims.
    """
    fair = _proportional(budget, [claim.weight for claim in claims])
    granted = [
        share if claim.need is None else min(claim.need, share) for claim, share in zip(claims, fair, strict=True)
    ]
    while (left := budget - sum(granted)) > 0:
        open_ = [i for i, claim in enumerate(claims) if claim.need is not None and claim.need > granted[i]]
        if not open_:
            break
        for i, share in zip(open_, _proportional(left, [claims[i].weight for i in open_]), strict=True):
            need = claims[i].need
            assert need is not None
            granted[i] += min(share, need - granted[i])
    spare = _proportional(budget - sum(granted), [claim.weight for claim in claims])
    return [one + other for one, other in zip(granted, spare, strict=True)]


def _proportional(total: int, weights: Sequence[int]) -> list[int]:
    """Whole shares in proportion to weights that add up to the total; the largest remainders are rounded up."""
    whole = sum(weights)
    if not whole:
        return []
    shares = [total * weight // whole for weight in weights]
    order = sorted(range(len(weights)), key=lambda i: (-(total * weights[i] % whole), i))
    for i in order[: total - sum(shares)]:
        shares[i] += 1
    return shares


def shared_out(plan: HubPlan, summaries: Mapping[str, Summary], member: str) -> tuple[Ceiling, ...]:
    """The ceilings of one member.

    Args:
        plan: the administrator's.
        summaries: of the members that have told theirs lately, by name.
        member: whose.

    Raises:
        InvalidInputError: if the plan has no such member.
    """
    if plan.member(member) is None:
        raise InvalidInputError("member", f"the plan has no member {member}")
    ceilings = []
    for budget in plan.budgets:
        sharing = [each for each in plan.members if each.regions is None or budget.region in each.regions]
        names = [each.name for each in sharing]
        if member not in names:
            continue
        at = names.index(member)
        told = [summaries.get(name) for name in names]

        accelerators = [None if each is None else each.accelerators(budget.region, budget.accelerator) for each in told]
        watts = [None if each is None else each.watts(budget.region) for each in told]
        ceilings.append(
            Ceiling(
                budget.region,
                budget.accelerator,
                _share(budget.accelerators, sharing, accelerators, at),
                _share(budget.watts, sharing, watts, at),
            )
        )
    return tuple(ceilings)


def _share(total: int | None, sharing: Sequence[Member], needs: Sequence[int | None], at: int) -> int | None:
    """What the member at an index gets of a total; None if nothing limits it."""
    if total is None:
        return None
    return split(total, [Claim(each.weight, need) for each, need in zip(sharing, needs, strict=True)])[at]


def version_of(ceilings: Sequence[Ceiling]) -> str:
    """A digest that changes with the ceilings and only then."""
    text = json.dumps([ceiling_document(each) for each in ceilings], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def document_of(ceilings: Sequence[Ceiling], issued: str, expires: str) -> dict[str, Any]:
    """The document that a member pulls; the times are RFC 3339."""
    return {
        "schema": SCHEMA,
        "version": version_of(ceilings),
        "issuedAt": issued,
        "expiresAt": expires,
        "ceilings": [ceiling_document(each) for each in ceilings],
    }


def _validated(model: type[Model], document: object) -> Model:
    try:
        return model.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(str(each) for each in first["loc"])
        raise InvalidInputError(path, first["msg"]) from None
