"""The ceilings that hold in this process now."""

from heliotrope.scale.ceilings import Ceilings


class CurrentCeilings:
    """What the hub said last. Whoever plans asks `holding`; None is no limit, as without a hub."""

    def __init__(self) -> None:
        self.last: Ceilings | None = None
        """Also when it has expired; for reports."""

    def holding(self, now_unix_s: float) -> Ceilings | None:
        """The ceilings, if they have not expired."""
        return self.last if self.last is not None and self.last.holds(now_unix_s) else None
