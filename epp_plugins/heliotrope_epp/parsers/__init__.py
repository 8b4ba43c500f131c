"""Reading request and response bodies of the APIs that engines speak."""
