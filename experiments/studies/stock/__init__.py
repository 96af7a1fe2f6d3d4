"""What stock learners come to in the environments: tasks, learning under a limit of processor time, episodes that are tried."""
