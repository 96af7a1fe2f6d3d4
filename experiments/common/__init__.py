"""Shared parts of experiments: settings, jobs, the journal of results, pools, and the style of figures."""
