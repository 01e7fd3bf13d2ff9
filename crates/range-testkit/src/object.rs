//! What a [`FaultServer`](crate::FaultServer) serves.

use std::sync::Arc;

/// An object with its entity tag. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    content: Content,
    etag: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    Bytes(Arc<[u8]>),
    Pattern { seed: u64, len_bytes: u64 },
}

impl Object {
    /// The given bytes, with the strong tag `"v1"`.
    pub fn bytes(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self {
            content: Content::Bytes(bytes.into()),
            etag: Some("\"v1\"".to_owned()),
        }
    }

    /// `len_bytes` bytes that [`Object::byte_at`] computes: an object of any size without memory.
    #[must_use]
    pub fn pattern(seed: u64, len_bytes: u64) -> Self {
        let content = Content::Pattern { seed, len_bytes };
        Self {
            content,
            etag: Some("\"v1\"".to_owned()),
        }
    }

    /// The same content under another `ETag` field value, quotes and `W/` included.
    #[must_use]
    pub fn with_etag(mut self, etag: &str) -> Self {
        self.etag = Some(etag.to_owned());
        self
    }

    /// The same content without an entity tag.
    #[must_use]
    pub fn without_etag(mut self) -> Self {
        self.etag = None;
        self
    }

    /// Length in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        match &self.content {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Pattern { len_bytes, .. } => *len_bytes,
        }
    }

    /// The `ETag` field value.
    #[must_use]
    pub fn etag(&self) -> Option<&str> {
        self.etag.as_deref()
    }

    /// Bytes `start..end`, clipped to the object.
    #[must_use]
    pub fn slice(&self, start: u64, end: u64) -> Vec<u8> {
        (start..end.min(self.len_bytes()))
            .filter_map(|offset| self.byte_at(offset))
            .collect()
    }

    /// The byte at `offset`; `None` behind the end.
    #[must_use]
    pub fn byte_at(&self, offset: u64) -> Option<u8> {
        match &self.content {
            Content::Bytes(bytes) => bytes.get(usize::try_from(offset).ok()?).copied(),
            Content::Pattern { seed, len_bytes } => {
                // One multiplication spreads neighbouring offsets over all byte values, so that
                // shifted or swapped bytes are told apart.
                let mixed = (offset ^ seed.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                (offset < *len_bytes).then(|| mixed.to_be_bytes()[0])
            }
        }
    }
}
