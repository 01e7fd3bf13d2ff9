//! Test servers for range transports: raw-TCP fault scripts, request log, and the link proxy.
