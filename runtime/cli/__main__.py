"""`python -m runtime.cli`, where the console script is not installed."""

from runtime.cli import main

if __name__ == "__main__":
    main()
