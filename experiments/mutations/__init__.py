"""Mutations: thirty-two faults planted one at a time in a copy of the tree, and which test catches each."""
