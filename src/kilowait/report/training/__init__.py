"""How an agent was trained, what it is worth beside rules, and what it looks at."""
