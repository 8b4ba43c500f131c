"""Forecasts of carbon intensity with their uncertainty, and how wrong they turned out to be."""
