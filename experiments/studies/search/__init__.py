"""`gensor study`: compare many strategies on recorded tasks."""
