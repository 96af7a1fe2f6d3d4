"""A local page on which one program is constructed by hand, or watched while a strategy constructs it (`gensor explore`)."""
