"""Keeping endpoints by the value of one label."""

from collections.abc import Sequence

from heliotrope_epp.plugins.interface import LlmRequest, Options


class LabelFilter:
    """Keeps options whose label has one of some values, and those without the label if that is allowed."""

    def __init__(self, label: str, values: Sequence[str], *, allow_missing: bool) -> None:
        self._label = label
        # A label can have no value None, so the missing label is one more key.
        self._keep: frozenset[str | None] = frozenset((*values, None) if allow_missing else values)

    def filter(self, request: LlmRequest, options: Options) -> Options:  # noqa: ARG002
        """The options that pass, in order."""
        label, keep = self._label, self._keep
        return options.kept([i for i, state in enumerate(options.states) if state.endpoint.labels.get(label) in keep])
