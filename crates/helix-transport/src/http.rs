//! Ranges over HTTP/1.1 and HTTP/2, plain or TLS. RFC 9110 section 14 is the specification.
