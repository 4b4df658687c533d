"""What people and scripts see: one sink for results and messages, progress bars, plain tables."""

__all__: list[str] = []
