"""Search seconds until each network is nearly as fast as at the end of its search."""
