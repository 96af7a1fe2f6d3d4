"""Times of programs, recorded: tables, stores, cards of tasks, Measured v1, and `gensor adapt`."""
