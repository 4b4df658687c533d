"""Tumour growth under chemotherapy and radiotherapy."""
