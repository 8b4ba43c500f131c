"""Phases of a request at endpoints of their own: by the policy where one decides, else by llm-d's rules."""

from dataclasses import dataclass, replace

import numpy as np

from heliotrope_epp.plugins.interface import DisaggregatingHandler, EncodingHandler, Option, Pick
from heliotrope_epp.plugins.pickers.carbon import Prefillers
from heliotrope_epp.plugins.profile import Profile
from heliotrope_epp.plugins.running import Asked, filtered, run_profile
from heliotrope_epp.plugins.scheduled import ProfileResult, ProfileTimes


@dataclass(frozen=True, slots=True)
class Offered:
    """What the profile of a phase leaves a policy to choose from."""

    profile: Profile
    helpers: Prefillers
    considered: int
    times: ProfileTimes

    def show(self, results: dict[str, ProfileResult], chosen: tuple[Option, ...]) -> None:
        """Add what the policy chose as the result of the profile; nothing, where it chose none."""
        if chosen:
            kept = self.helpers.options
            none = replace(self.profile, scorers=())  # no score is asked for
            results[self.profile.name] = ProfileResult(
                none, Pick(chosen), kept, (), np.zeros(len(kept)), self.considered, self.times
            )


def offered(profile: Profile, asked: Asked) -> Offered | None:
    """None without a policy. Under `Advise`, and for what is held out, it says what it would do with them."""
    steering = asked.steering
    if steering is None:
        return None
    started_s = asked.timer()
    kept, _ = filtered(profile, asked.request, asked.options)
    filtered_s = asked.timer()
    standing = steering.memory.standing(kept, steering.policy, steering.now_s)
    times = ProfileTimes(started_s, filtered_s, picked_s=filtered_s)
    return Offered(profile, Prefillers(kept, standing), len(asked.options), times)


def chosen_prefiller(results: dict[str, ProfileResult]) -> tuple[Option, ...]:
    """Of the first profile that chose one."""
    return next(((r.pick.prefill,) for r in results.values() if r.pick.prefill is not None), ())


def chosen_encoders(results: dict[str, ProfileResult]) -> tuple[Option, ...]:
    """Of the first profile that chose any."""
    return next((r.pick.encoders for r in results.values() if r.pick.encoders), ())


def encode_elsewhere(
    results: dict[str, ProfileResult], handler: EncodingHandler, profile: Profile, asked: Asked
) -> None:
    """Choose encoders as llm-d does: by their profile. Where it leaves none, images are encoded with the prefill."""
    decode = results.get(handler.decode_profile)
    if decode is None or not decode.pick.options or not handler.encodes_elsewhere(asked.request):
        return
    there = results[profile.name] = _configured(profile, asked)
    if there.pick.options:
        pick = replace(decode.pick, encoders=there.pick.options)
        results[handler.decode_profile] = replace(decode, pick=pick)


def prefill_elsewhere(
    results: dict[str, ProfileResult], handler: DisaggregatingHandler, profile: Profile, asked: Asked
) -> None:
    """Choose a prefiller as llm-d does, if the handler wants one: by the profile for prefill."""
    decode = results.get(handler.decode_profile)
    if decode is None or not decode.pick.options:
        return
    if not handler.prefills_elsewhere(asked.request, decode.pick.options[0]):
        return
    there = results[profile.name] = _configured(profile, asked)
    pick = replace(decode.pick, options=(), reason=f"prefill: {there.pick.reason}")
    if there.pick.options:
        prefill = there.pick.options[0]
        pick = replace(decode.pick, prefill=None if prefill.key == decode.pick.options[0].key else prefill)
    results[handler.decode_profile] = replace(decode, pick=pick)


def _configured(profile: Profile, asked: Asked) -> ProfileResult:
    """What the profile's own picker chooses."""
    carbon = profile.picker is profile.carbon_picker
    return run_profile(profile, asked if carbon else replace(asked, steering=None))
