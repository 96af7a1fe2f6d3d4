"""The analytic model: traffic, occupancy, bank conflicts, waves, latency; the roofline floor; calibration."""
