"""A whole space of schedules: a numbering of its schedules, and tables that are indexed by the numbers."""
