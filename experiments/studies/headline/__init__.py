"""The study of whether learned policies beat the traverser in kernel times on a GPU, with its operators and statistics."""
