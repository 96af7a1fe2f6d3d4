"""`experiments.study`: many strategies on recorded tasks."""
