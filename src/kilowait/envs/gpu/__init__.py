"""`kilowait/Gpu-v0`: jobs on placed nodes, chosen together with the type of GPU they get."""
