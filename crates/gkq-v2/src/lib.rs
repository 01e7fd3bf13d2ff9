//! The knot container (GKQ version 2): bytes in, views and byte ranges out.
