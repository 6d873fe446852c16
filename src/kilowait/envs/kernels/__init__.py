"""Compiled kernels of the environments: episode reset, decision points, observation, reward and step."""
