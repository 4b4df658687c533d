"""How flags, environment, file and preset resolve to settings; what there is to set stands beside what it configures.

Nothing is imported here, so that `costar --help` need not load pydantic: import from the modules.
"""

__all__: list[str] = []
