"""Prediction tasks, the evaluation of predictors, and reports of predictions."""
