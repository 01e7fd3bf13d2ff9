//! A static range server.
