"""A whole space of schedules: numbers of its schedules, and tables that are looked up by them."""
