"""The base of all settings, and those that methods and verbs share, with their bounds.

Nothing is imported here, so that `costar --help` need not load pydantic: import from the modules.
"""

__all__: list[str] = []
