"""Keeping endpoints by the value of one label."""

from collections.abc import Sequence

from heliotrope_epp.plugins.interface import LlmRequest, Option


class LabelFilter:
    """Keeps options whose label has one of some values, and those without the label if that is allowed."""

    def __init__(self, label: str, values: Sequence[str], *, allow_missing: bool) -> None:
        self._label = label
        # A label can have no value None, so the missing label is one more key.
        self._keep: frozenset[str | None] = frozenset((*values, None) if allow_missing else values)

    def filter(self, request: LlmRequest, options: Sequence[Option]) -> Sequence[Option]:  # noqa: ARG002
        """The options that pass, in order."""
        label, keep = self._label, self._keep
        return [option for option in options if option.state.endpoint.labels.get(label) in keep]
