"""AutoTVM (Chen et al., NeurIPS 2018): learned cost models, features, templates, annealing on a model, transfer."""
