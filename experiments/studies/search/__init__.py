"""`gensor study`: many strategies on recorded tasks."""
