"""Schedules of convolutions by Winograd's algorithm on a CPU: their fields, limits, analytic model and construction graph."""
