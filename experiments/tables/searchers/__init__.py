"""What the tables of Ansor and AutoTVM share: their studies and figures."""
