"""`gensor transfer_recorded`: policies trained on recordings of one real GPU, tested on other GPUs."""
