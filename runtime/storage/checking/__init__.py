"""Checking streams: what their rows say twice is compared, and what is wrong in one place is made anew from others."""
