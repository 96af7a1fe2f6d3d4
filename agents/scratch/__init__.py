"""Agents that learn one task from scratch, in environments whose steps a session of a frozen suite counts."""
