"""How a device is kept busy: compilation as a pipeline, trials, turns, work in processes, words on the screen."""
