"""What is wrong with a value, wherever it is used: the order of sets, and changes of what is shared."""
