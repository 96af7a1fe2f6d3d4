"""Agents that learn one task from scratch. The session of a frozen suite provides their environments and counts the steps."""
