"""Cohorts of published differential equations: glucose under insulin, HIV under two drugs, INR under warfarin."""
