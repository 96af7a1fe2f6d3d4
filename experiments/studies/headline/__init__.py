"""The study that asks whether learned policies beat the traverser on kernel times of a GPU: its operators, its statistics."""
