//! Byte ranges over HTTP, files and memory: planned, pinned to one object version, metered.
