"""The one place where the module of the algorithm under check is named."""

from runtime.algorithms.state_based import process as state_based

__all__ = ["state_based"]
