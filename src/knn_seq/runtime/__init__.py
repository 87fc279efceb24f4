"""The machine and the terminal: progress, sizes, memory, threads, time."""
