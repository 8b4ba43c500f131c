"""One scheduler per file, each a `heliotrope.place.assignment.Scheduler`."""
