"""Pictures of README and site that are made of the real code, one idea each; `docs/make_images.py` draws them all."""
