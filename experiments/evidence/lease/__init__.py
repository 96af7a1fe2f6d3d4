"""What a lease brought: taken home, and as sections of its day's page."""
