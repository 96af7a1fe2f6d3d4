"""Times as statistics: the timing protocol, intervals, verdicts, the floor of believable times."""
