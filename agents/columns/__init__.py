"""Policies that write programs column by column (tiles of an axis, or a knob): choices, network, learner, and strategies."""
