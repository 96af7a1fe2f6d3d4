"""How policies that walk are learned: the registry of learners, their networks, what they observe, cloning."""
