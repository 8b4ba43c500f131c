"""A real Envoy on this machine in front of a picker: installed once, configured as llm-d's standalone chart does."""
