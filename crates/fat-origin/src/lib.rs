//! The publishing side: pack checkpoints into knots and row files, inspect, verify, serve.
