"""Results of a lease: copied home, and as sections of its day's page."""
