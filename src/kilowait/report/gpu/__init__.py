"""What a page says and draws of GPUs, where jobs were placed on single nodes."""
