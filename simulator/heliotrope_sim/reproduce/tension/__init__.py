"""Placing single requests over regions within their SLOs (paper carbon-slo-tension), run again."""
