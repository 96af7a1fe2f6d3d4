"""Statistics of times: the timing protocol, confidence intervals, verdicts (faster or slower), the shortest plausible time."""
