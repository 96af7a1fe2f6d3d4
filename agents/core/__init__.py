"""Code that strategies share: rankings, programs as vectors of choices, ledgers of measurements, threads."""
