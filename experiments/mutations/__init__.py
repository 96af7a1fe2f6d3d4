"""Mutation testing: each of thirty-two faults is planted alone in a copy of the tree, and a test has to catch it."""
