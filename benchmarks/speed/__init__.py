"""Speed of the parts of kilowait on this machine, with targets: `python -m benchmarks.speed`."""
