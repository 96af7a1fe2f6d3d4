"""Fusion: blocks of two products, changes of a plan by single decisions, and rules that make plans."""
