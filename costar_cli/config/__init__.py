"""Settings of the verbs: models with bounds, presets, and how flags, environment, file and preset resolve to them.

Nothing is imported here, so that `costar --help` need not load pydantic: import from the modules.
"""

__all__: list[str] = []
