"""The Python API: what `import costar_cli as costar` offers, and what the verbs of the command line are built on."""
