"""`single-profile-handler`: the one profile runs and decides."""

from collections.abc import Mapping, Sequence

from heliotrope_epp.plugins.interface import LlmRequest, Pick

SINGLE_PROFILE_HANDLER = "single-profile-handler"


class SingleProfileHandler:
    """For configurations with exactly one profile, which the loader checks."""

    def profiles(self, request: LlmRequest, names: Sequence[str]) -> Sequence[str]:  # noqa: ARG002
        """All of them: the one."""
        return names

    def primary(self, picks: Mapping[str, Pick]) -> str:
        """The only one."""
        (name,) = picks
        return name
