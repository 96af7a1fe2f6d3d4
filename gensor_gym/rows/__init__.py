"""Graphs whose nodes are rows of numbers: base classes of these graphs and their schedules."""
