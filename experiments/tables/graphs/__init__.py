"""Tables of whole networks and of oneDNN Graph Compiler's graphs, timed on this machine."""
