"""Carbon intensity: what is known of a grid, how fresh it is, and the grams that joules cost there."""
