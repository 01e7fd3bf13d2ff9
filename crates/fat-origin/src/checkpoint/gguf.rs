//! The checked GGUF reader.
