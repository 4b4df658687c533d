"""Renderers: figures and pages of answers, searches, evaluations, data and models."""
