"""Shapes that were published, as data with a name each, and the rule that splits all operators into parts."""
