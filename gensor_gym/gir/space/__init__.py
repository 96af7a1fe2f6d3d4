"""The whole space of a fused operator's schedules: numbers of schedules, and tables that are indexed by them."""
