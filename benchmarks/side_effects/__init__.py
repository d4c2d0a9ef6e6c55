"""What is left of documents when consumers are killed: counted, with real processes and SIGKILL."""
