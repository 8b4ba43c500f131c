"""Profile handlers: which scheduling profiles run."""
