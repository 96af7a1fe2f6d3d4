"""Networks whose sizes change from call to call: proofs that a larger network serves a smaller one, and their functions."""
