"""A year of placement on marginal emission rates: the study cleanest-grid, as an illustration."""
