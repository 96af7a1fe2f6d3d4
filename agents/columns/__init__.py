"""The policy that writes programs column by column: choices, network, learner, and the strategy."""
