"""Statistics of times: the timing protocol, confidence intervals, verdicts, the shortest plausible time."""
