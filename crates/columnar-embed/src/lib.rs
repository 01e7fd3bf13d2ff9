//! Embedding rows by byte range: row layout, shared row cache, verified rows.
