"""Sepsis in intensive care: the Markov decision process of the package icu-sepsis."""
