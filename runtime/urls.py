"""Urls and paths of folders. What follows a `?` in a url are options of the file system, and no part of the path."""

from __future__ import annotations


def path_and_options(url: str) -> tuple[str, str]:
    """Cut a url into what names the folder, and the options, with their `?`. A path of a disk has no options."""
    path, mark, options = url.partition("?") if "://" in url else (url, "", "")
    return path, mark + options


def within(url: str, *names: str) -> str:
    """Return the path or url of what is in a folder, in folders inside each other."""
    path, options = path_and_options(url)
    return "/".join((path, *names)) + options
