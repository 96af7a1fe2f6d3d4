"""How well the model of a GPU ranks programs that ran on one: what is read, the scores, the page."""
