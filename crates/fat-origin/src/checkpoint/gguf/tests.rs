//! One hostile file per rule, and a good one.
