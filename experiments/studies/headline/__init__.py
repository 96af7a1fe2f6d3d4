"""Study of whether learned policies beat Gensor's traverser in kernel times, with its operators, scores and page."""
