"""The leaderboard: its tasks, replays, submissions and tables."""
