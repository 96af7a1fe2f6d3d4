"""Statistics of times: the timing protocol, intervals, verdicts, the least plausible time."""
