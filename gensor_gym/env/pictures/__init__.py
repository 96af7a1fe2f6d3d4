"""Pictures of programs, as text and as figures."""
