"""Training of policies that walk on the construction graph: learners and their registry, networks, observations, cloning."""
