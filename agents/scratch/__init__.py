"""Agents that learn one task from nothing, in environments whose steps a session of a frozen suite counts."""
