"""Test of column policies on the model, before GPU time is spent: speed and kinds of the programs that they write.

A column policy chooses the values of a schedule's columns (tile sizes and knobs) one after another.
"""
