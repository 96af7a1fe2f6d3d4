"""What all experiments share: settings, jobs, the journal of results, pools, statistics, figures' style."""
