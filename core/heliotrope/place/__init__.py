"""Assigns windows of requests to regions: every scheduler is a pure function of window, regions, policy and now."""
