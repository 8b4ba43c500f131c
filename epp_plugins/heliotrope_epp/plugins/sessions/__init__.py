"""Sessions in the picker: who a request belongs to, what became of its turns, and the gate that keeps it."""
