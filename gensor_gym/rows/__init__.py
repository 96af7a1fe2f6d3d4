"""Base classes for construction graphs and their schedules, which are rows of numbers."""
