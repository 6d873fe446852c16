"""`kilowait/Energy-v0`: who is next, and how fast; when to wait, and which nodes may sleep."""
