"""What a kernel should compute: draws, float64 references, accepted errors."""
