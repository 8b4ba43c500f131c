"""Attributes of the region tier's span; `heliotrope_epp.tracing.attributes` has the others and the list of spans."""

from heliotrope_epp.tracing.attribute import Attribute

REGION_REASON = Attribute("heliotrope.region.reason", "string", "", "Why this region.", "objective")
REGION_SCHEDULER = Attribute("heliotrope.region.scheduler", "string", "", "Who assigned the window.", "Facility")
REGION_OUTCOME = Attribute("heliotrope.region.outcome", "string", "", "How it came to its assignment.", "Optimal")
REGION_FALLBACK = Attribute(
    "heliotrope.region.fallback", "string", "", "Why greedy took the solver's place.", "deadline"
)
REGION_WINDOW = Attribute("heliotrope.region.window", "int", "", "Number of the window.", "4711")
REGION_WINDOW_REQUESTS = Attribute("heliotrope.region.window_requests", "int", "requests", "In the window.", "120")
REGION_WINDOW_SECONDS = Attribute(
    "heliotrope.region.window_seconds", "double", "s", "That the request waited in it, the solver included.", "0.09"
)
REGION_SOLVER_SECONDS = Attribute("heliotrope.region.solver_seconds", "double", "s", "Of the assignment.", "0.004")
REGION_GAP = Attribute(
    "heliotrope.region.gap", "double", "", "Relative distance to the proven bound, where one is known.", "0.001"
)
REGION_STATE_AGE = Attribute("heliotrope.region.state_age_seconds", "double", "s", "Age of the region's state.", "0.6")
REGION_HELD = Attribute(
    "heliotrope.region.held_seconds", "double", "s", "In the queue of deadlines, before the window.", "1800"
)
REGION_SESSION = Attribute(
    "heliotrope.region.session", "string", "", "Why its session stayed in its region or left it.", "chosen anyway"
)
REGION_CARBON = Attribute(
    "heliotrope.region.carbon_counts", "boolean", "", "Whether intensities of all regions were known.", "true"
)
