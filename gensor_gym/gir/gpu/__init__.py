"""Row nests on GPUs: how blocks and lanes share rows and columns, which schedules fit, what they cost."""
