"""Shared parts of the tables of Ansor and AutoTVM: studies and figures."""
