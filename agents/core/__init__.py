"""What strategies share: rankings, programs as coordinates, what was measured, threads."""
