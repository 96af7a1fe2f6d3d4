"""Statistics of searches: means, intervals, tests and paired differences."""
