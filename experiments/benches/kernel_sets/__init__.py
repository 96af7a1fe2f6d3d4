"""Parts of the kernels suite: called kernels, prepacked kernels, float32 twins, and results over all shapes."""
