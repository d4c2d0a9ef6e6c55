"""The batches of this project, and the ceiling of the engine that they run on."""
