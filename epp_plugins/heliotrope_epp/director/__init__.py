"""From an assembled HTTP request to a decision: parse, admit, schedule, follow until the end."""
