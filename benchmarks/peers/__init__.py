"""Other ways to the same end: other engines, other libraries, and clients without any library."""
