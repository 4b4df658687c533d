"""Benchmarks: which jobs they consist of, the paper's tables from their scores, paired tests, exports and figures."""
