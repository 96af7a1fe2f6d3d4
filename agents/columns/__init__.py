"""Policies that write programs column by column: choices, network, learner, and strategies."""
