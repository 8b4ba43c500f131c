"""Which nodes' agents are silent, judged by when their signs of life were seen to change, never by comparing clocks."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from math import inf

from heliotrope.api.v1alpha1.nodepower import SILENT_S

LONGEST_GAP_S = 60.0
"""Between two looks. A longer one tells that this process was stopped, or did not lead, and heard nothing meanwhile."""

Sign = tuple[str, datetime]
"""The UID of a NodePower and its agent's last sign of life."""


@dataclass(frozen=True, slots=True)
class _Heard:
    sign: Sign
    at_s: float
    """When it was first seen, of the time that was listened."""
    changed: bool = False
    """Whether another one was seen before."""
    asked_s: float = -inf
    """When the API server was last asked for it, of the same time."""


class Hearing:
    """Remembers signs of life. Only time in which they could have been heard counts towards silence."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Heard] = {}
        self._listened_s = 0.0
        self._looked_at_s: float | None = None

    def look(self, signs: Mapping[str, Sign], now_s: float) -> None:
        """Look at what is known.

        Args:
            signs: by node; of those whose agents leave any.
            now_s: of the caller's clock; one that is set back or forward tells nothing.
        """
        if self._looked_at_s is not None and 0.0 <= now_s - self._looked_at_s <= LONGEST_GAP_S:
            self._listened_s += now_s - self._looked_at_s
        self._looked_at_s = now_s
        self._nodes = {node: self._after(self._nodes.get(node), sign) for node, sign in signs.items()}

    def _after(self, before: _Heard | None, sign: Sign) -> _Heard:
        if before is not None and before.sign == sign:
            return before
        again = before is not None and before.sign[0] == sign[0]
        return _Heard(sign, self._listened_s, changed=again)

    def failed(self) -> None:
        """The API server could not be used: agents may not have been able to either."""
        self._looked_at_s = None

    def ages_s(self) -> Mapping[str, float]:
        """By node, for how long nothing new was heard."""
        return {node: self._listened_s - each.at_s for node, each in self._nodes.items()}

    def doubtful(self, most: int) -> list[str]:
        """Nodes that would be silent if the watch tells all; the API server is to be asked, a few at a time."""
        late = [
            (each.asked_s, node)
            for node, each in self._nodes.items()
            if self._listened_s - each.at_s >= SILENT_S and self._listened_s - each.asked_s >= SILENT_S
        ]
        return [node for _, node in sorted(late)[:most]]

    def asked(self, node: str) -> None:
        """The API server was asked for a node's NodePower; `look` is told what it said."""
        self._nodes[node] = replace(self._nodes[node], asked_s=self._listened_s)

    def silent(self) -> frozenset[str]:
        """Nodes whose agents are."""
        return frozenset(
            node
            for node, each in self._nodes.items()
            if self._listened_s - each.at_s >= SILENT_S and each.asked_s >= each.at_s + SILENT_S
        )

    def unheard(self) -> frozenset[str]:
        """Nodes that nothing was heard from since this process began: of them what was said before still holds."""
        return frozenset(node for node, each in self._nodes.items() if not each.changed)
