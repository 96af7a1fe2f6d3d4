"""Shared parts of experiments: settings, jobs, the journal of results, pools, statistics, figures' style."""
