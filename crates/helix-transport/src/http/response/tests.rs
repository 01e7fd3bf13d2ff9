//! One case per rule of RFC 9110 that a reply can break.
