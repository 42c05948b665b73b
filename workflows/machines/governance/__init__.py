"""Machines of power over Interlock itself: who is an operator, what is removed, who was refused (docs/spec/)."""
