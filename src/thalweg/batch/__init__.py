"""A batch: what INGEST and SLOT do, in which order its effects happen, and what is left after it.

Nothing here knows Spark. A runner runs the stages (`contract`); `local_runner` is one, in the calling process.
"""
