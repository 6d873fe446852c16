"""Report sections on run-time predictions: accuracy, calibration, drift and feature attribution."""
