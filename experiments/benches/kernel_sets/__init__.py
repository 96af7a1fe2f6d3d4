"""Parts of the kernels suite: called kernels, prepacked kernels, float32 twins, results over all shapes, and the figure."""
