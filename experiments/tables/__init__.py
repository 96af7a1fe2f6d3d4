"""One module for each table of a paper, `<paper>_<table>`, with `make() -> Table`."""
