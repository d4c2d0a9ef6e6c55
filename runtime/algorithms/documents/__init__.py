"""Documents that outputs announce: prepare, commit, publish; register, clean up."""
