"""Tables of Gensor's paper, and what they share: published numbers, searches, speeds, figures."""
