"""Products in the tile registers of x86 (AMX): C text of helpers, and of the loop over the reduction."""
