"""What a recorded decision says of its policy beside objective and promise: class, event, wishes, limits."""

from heliotrope.decide.losses import Loss
from heliotrope.decide.recorded import Candidate, CarbonDecision, Constraints
from heliotrope_cli.quantities import UNKNOWN, plain, shown


def percent(value: float | None) -> str:
    """A share."""
    return UNKNOWN if value is None else f"{value:.3g}" if 0.0 < value < 0.0005 else f"{value:.1%}"


def settings(decision: CarbonDecision) -> list[str]:
    """Where the settings came from, and what gave way."""
    lines = []
    if decision.service_class is not None:
        lines.append(f"The request is of class {shown(decision.service_class)}.")
    if decision.event is not None:
        lines.append(f"The objective is that of the demand-response event {shown(decision.event)}.")
    asked = decision.overrides
    if asked.applied:
        lines.append(f"The request asked for its own {' and '.join(map(shown, asked.applied))}.")
    lines += [f"It does not get its own {shown(what)}: {shown(why)}." for what, why in asked.refused.items()]
    if decision.relaxed:
        gave = " and ".join(map(shown, decision.relaxed))
        lines.append(f"Gave way, as nothing within it could be chosen as well: {gave}.")
    return lines


def limits(constraints: Constraints) -> list[str]:
    """The limits of the fleet."""
    parts = []
    share = constraints.largest_region_share
    if share is not None and share < 1.0:
        parts.append(f"at most {share:.0%} of recent requests in one region")
    if constraints.least_headroom_watts is not None:
        parts.append(f"at least {plain(constraints.least_headroom_watts)} W of power left")
    if constraints.avoid_throttled:
        parts.append("nothing throttled")
    return parts


def why_limited(candidate: Candidate, decision: CarbonDecision) -> str | None:
    """The verdict of a candidate that a limit ruled out, with its numbers; None for others."""
    constraints = decision.constraints or Constraints()
    match candidate.lost_because:
        case Loss.SHARE:
            shares = constraints.region_shares or {}
            share = shares.get("unknown" if candidate.region is None else candidate.region)
            return f"{Loss.SHARE}: {percent(share)} against {percent(constraints.largest_region_share)}"
        case Loss.POWER if candidate.throttled and constraints.avoid_throttled:
            return f"{Loss.POWER}: throttled"
        case Loss.POWER:
            watts = plain(candidate.headroom_watts)
            return f"{Loss.POWER}: {watts} W against {plain(constraints.least_headroom_watts)} W"
    return None
