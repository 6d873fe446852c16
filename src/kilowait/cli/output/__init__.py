"""Text output of the commands: tables and sentences for people."""
