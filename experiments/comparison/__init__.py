"""`experiments.compare`: strategies under equal budgets, their winners timed again, tables and figures."""
