//! [`Pass`]: positions on their way through the stages of a decoder. It can stop before a stage and
//! go on later, so that a model computes while its later layers are still being loaded.

use crate::Error;
use crate::attention::LayerStep;
use crate::buffers::PassBuffers;
use crate::decoder::Decoder;
use crate::kv_cache::KvCache;
use crate::slices::count_rows;

/// A pass under way. Dropped before [`finish`](Self::finish), it leaves the cache at its length.
#[derive(Debug)]
pub struct Pass<'a> {
    decoder: &'a Decoder,
    cache: &'a mut KvCache,
    hidden: &'a mut [f32],
    rows: usize,
    buffers: PassBuffers,
    /// The stage that comes next.
    next: usize,
}

impl<'a> Pass<'a> {
    /// Begins with `hidden`, `[seq, hidden_size]` embedding rows of the positions from `cache.len()`,
    /// which it changes where they are.
    ///
    /// # Errors
    /// [`Error::Argument`] for no rows or a part of one, [`Error::CacheFull`] if the positions don't
    /// fit, [`Error::CacheMismatch`] if the cache is another decoder's.
    pub fn begin(
        decoder: &'a Decoder,
        hidden: &'a mut [f32],
        cache: &'a mut KvCache,
    ) -> Result<Self, Error> {
        let config = decoder.config();
        let rows = count_rows(hidden, config.hidden_size, "hidden")?;
        let expected = [
            config.num_hidden_layers,
            config.num_key_value_heads,
            config.head_dim,
        ];
        let found = cache.geometry();
        if found != expected {
            return Err(Error::CacheMismatch { expected, found });
        }
        cache.check_room(rows)?;
        let (start, capacity) = (cache.len(), cache.capacity());
        let mut buffers = cache.take_buffers();
        decoder
            .rope
            .fill(&mut buffers.angles, start, rows, capacity);
        if let Some(local) = &decoder.rope_local {
            local.fill(&mut buffers.local_angles, start, rows, capacity);
        }
        Ok(Self {
            decoder,
            cache,
            hidden,
            rows,
            buffers,
            next: 0,
        })
    }

    /// The stage that comes next; [`Decoder::stages`] after the last.
    #[must_use]
    pub fn next_stage(&self) -> usize {
        self.next
    }

    /// Goes on up to, not through, stage `end`.
    ///
    /// Work is spread over the rayon pool this is called in, or the global one.
    ///
    /// # Errors
    /// [`Error::StageMissing`] if a stage is not loaded, [`Error::Tensor`] if a kernel refuses.
    pub fn run(&mut self, end: usize) -> Result<(), Error> {
        // Inside the pool a kernel's parallel loop costs a microsecond; from outside, a thread
        // switch each way, hundreds of times a token.
        if rayon::current_thread_index().is_some() {
            self.run_here(end)
        } else {
            rayon::scope(|_| self.run_here(end))
        }
    }

    fn run_here(&mut self, end: usize) -> Result<(), Error> {
        let (start, capacity) = (self.cache.len(), self.cache.capacity());
        while self.next < end {
            let Some(cache) = self.cache.layers_mut().get_mut(self.next) else {
                // Behind the layers stands the norm.
                self.decoder.norm()?.apply_in_place(self.hidden);
                self.next += 1;
                break;
            };
            let (layer, window) = self.decoder.layer(self.next)?;
            let PassBuffers {
                layer: buffers,
                angles,
                local_angles,
            } = &mut self.buffers;
            let is_local = self.decoder.rope_local.is_some() && window.is_some();
            let step = &mut LayerStep {
                angles: if is_local { &*local_angles } else { &*angles },
                cache,
                start,
                capacity,
                rows: self.rows,
                buffers,
            };
            layer.forward(self.hidden, step)?;
            self.next += 1;
        }
        Ok(())
    }

    /// Takes the positions into the cache. The hidden states are then those behind the last stage.
    ///
    /// # Errors
    /// [`Error::StageMissing`] if it has not been through all stages.
    pub fn finish(self) -> Result<(), Error> {
        if self.next < self.decoder.stages() {
            return Err(Error::StageMissing { stage: self.next });
        }
        self.cache.keep_buffers(self.buffers, self.rows);
        self.cache.advance(self.rows);
        Ok(())
    }
}
