"""Find and export kernels: `gensor optimize` for one operator, `gensor export` for many."""
