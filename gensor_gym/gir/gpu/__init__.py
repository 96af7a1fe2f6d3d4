"""Row nests on GPUs: distribution of rows and columns over blocks and lanes, legality, cost."""
