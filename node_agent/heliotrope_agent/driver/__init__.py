"""Access to the GPUs of a node, behind one interface for all vendors."""
