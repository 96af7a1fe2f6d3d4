"""Training of policies that walk: the registry of learners, their networks, their observations, cloning."""
