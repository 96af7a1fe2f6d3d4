"""Tables of results: what they hold, how they fit a screen, their Markdown and CSV."""
