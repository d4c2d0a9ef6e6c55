"""Names, annotations and attributes resolved to the values that they may have."""
