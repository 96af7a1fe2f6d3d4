"""Searches of plans of networks on the graph of decisions, and local search by single decisions."""
