"""Agents that learn one task from scratch in environments of a frozen suite's session, which counts the steps."""
