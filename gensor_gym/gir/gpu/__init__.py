"""Row nests (loops over rows and columns) on GPUs: the threads that compute each row, legality of schedules, analytic model."""
