"""Statistics over searches: rates, intervals, paired differences."""
