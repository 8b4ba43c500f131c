"""Filters: which endpoints may be used."""
