"""Results of a lease (limited time on a GPU): copying them to this project, and their sections of the day's page."""
