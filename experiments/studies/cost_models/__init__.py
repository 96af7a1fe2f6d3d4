"""Study of cost models of programs on Measured v1: which ranks best, and which programs to record first under a budget."""
