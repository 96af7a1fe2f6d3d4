"""What the pages of evidence show: a figure of each, drawn from the rows of its page."""
