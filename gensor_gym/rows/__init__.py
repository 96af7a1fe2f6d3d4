"""Graphs whose nodes are rows of numbers: what every such graph and every such schedule has in common."""
