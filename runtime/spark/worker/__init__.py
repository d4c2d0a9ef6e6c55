"""Code that runs in Python workers: deliveries come in, are handled stream by stream, and outcomes go out."""
