"""`kvLinks` of `carbon-picker`: measured costs of links and tiers in place of the defaults."""

from dataclasses import fields, replace
from typing import Self

from pydantic import Field, model_validator

from heliotrope.cache.links import DEFAULT_LINKS, DEFAULT_TIERS, Link, LinkClass, Links, Tier
from heliotrope.engine.encoder import DEFAULT_ENCODER, EncoderModel
from heliotrope_epp.plugins.parameters import StrictModel
from heliotrope_epp.plugins.pickers.ranking import PickerParameters


class LinkParameters(StrictModel):
    """One link or tier; what is left out stays as the default has it."""

    usable: bool = True
    """False: nothing is moved over it."""
    bytes_per_second: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """What one transfer gets."""
    latency_seconds: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Until bytes flow."""
    network_joules_per_bit: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Of everything between the ends."""
    sender_joules_per_bit: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Of the sending end, or of a tier."""
    receiver_joules_per_bit: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Of the receiving end."""

    def over(self, default: Link) -> Link | None:
        """The link with these values; None where it is not to be used."""
        if not self.usable:
            return None
        names = [field.name for field in fields(Link)]
        given = {name: getattr(self, name) for name in names}
        return replace(default, **{name: value for name, value in given.items() if value is not None})


class EncoderParameters(StrictModel):
    """Measured costs of encoding images (`heliotrope.engine.encoder`); what is left out stays as the default has it."""

    base_seconds: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    seconds_per_image: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    seconds_per_token: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    base_joules: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    joules_per_image: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    joules_per_token: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    bytes_per_token: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Of an embedding."""
    relative_error: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """One standard deviation of seconds and joules over the estimate."""


class CarbonPickerParameters(PickerParameters):
    """What the carbon picker takes beside every picker's."""

    kv_links: dict[str, LinkParameters] | None = None
    """By `node`, `rack`, `region`, `wan`, `cpu` and `disk`; absent: the defaults of docs/kv-actions.md."""
    encoder: EncoderParameters | None = None
    """Absent: the defaults of docs/modalities.md."""

    @model_validator(mode="after")
    def _known_links(self) -> Self:
        known = [*LinkClass, *Tier]
        for name in self.kv_links or ():
            if name not in known or name == Tier.ACCELERATOR:
                names = ", ".join(each for each in known if each != Tier.ACCELERATOR)
                raise ValueError(f"kvLinks has no link {name!r}; there are {names}")
        return self

    @property
    def encoder_model(self) -> EncoderModel:
        """What encoding takes."""
        given = {} if self.encoder is None else self.encoder.model_dump(exclude_none=True)
        return replace(DEFAULT_ENCODER, **given)

    @property
    def links(self) -> Links:
        """Every way there is."""
        given = self.kv_links or {}
        between = {kind: given.get(kind, LinkParameters()).over(link) for kind, link in DEFAULT_LINKS.items()}
        tiers = {tier: given.get(tier, LinkParameters()).over(link) for tier, link in DEFAULT_TIERS.items()}
        return Links(
            {kind: link for kind, link in between.items() if link is not None},
            {tier: link for tier, link in tiers.items() if link is not None},
        )
