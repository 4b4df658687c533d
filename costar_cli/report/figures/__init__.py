"""Every figure and page, drawn with matplotlib: import the module of the one that is wanted, where it is drawn."""
