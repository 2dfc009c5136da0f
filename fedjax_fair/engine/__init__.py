"""The engine: one round as a pure function, many rounds in one program, and what a run leaves behind."""
