"""What a run on a device does: correctness, libraries, tables, contests, fine-tuning."""
