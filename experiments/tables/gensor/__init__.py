"""What Gensor's tables share: published numbers, searches, speeds, figures."""
