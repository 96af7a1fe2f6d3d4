"""Study of transfer between recorded GPUs: policies trained on recordings of some GPUs, tested on others."""
