"""`kilowait/Gpu-v0`: job, GPU type, placement and preemption on a node-level GPU cluster."""
