"""Orders of images in memory: which values of a network have channels last, and the network that computes and reads them so."""
