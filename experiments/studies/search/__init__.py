"""Study of searches (`gensor study`): many strategies compared on recorded tasks."""
