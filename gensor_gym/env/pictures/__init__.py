"""Programs for people: as text and as figures."""
