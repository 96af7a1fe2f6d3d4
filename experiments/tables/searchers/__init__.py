"""What the tables of Ansor and AutoTVM share: studies and figures."""
