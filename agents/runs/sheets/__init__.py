"""Tables of results: content, layout on a screen, Markdown and CSV."""
