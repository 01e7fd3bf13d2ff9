//! [`Pass`]: positions on their way through the stages of a decoder. It can stop before a stage and
//! go on later, so that a model computes while its later layers are still being loaded.

use candle_core::{Device, Tensor};

use crate::Error;
use crate::attention::LayerStep;
use crate::buffers::Buffers;
use crate::decoder::Decoder;
use crate::kv_cache::KvCache;
use crate::rope::RopeAngles;
use crate::slices::{check_rows, with_f32};

/// A pass under way. Dropped before [`finish`](Self::finish), it leaves the cache at its length.
#[derive(Debug)]
pub struct Pass<'a> {
    decoder: &'a Decoder,
    cache: &'a mut KvCache,
    hidden: Vec<f32>,
    rows: usize,
    angles: RopeAngles,
    local_angles: Option<RopeAngles>,
    buffers: Buffers,
    /// The stage that comes next.
    next: usize,
}

impl<'a> Pass<'a> {
    /// Begins with `hidden`, `[seq, hidden_size]` f32 embedding rows of the positions from
    /// `cache.len()`.
    ///
    /// # Errors
    /// [`Error::Argument`] for another shape or type, [`Error::CacheFull`] if the positions don't
    /// fit, [`Error::CacheMismatch`] if the cache is another decoder's.
    pub fn begin(
        decoder: &'a Decoder,
        hidden: &Tensor,
        cache: &'a mut KvCache,
    ) -> Result<Self, Error> {
        let config = decoder.config();
        let (hidden, rows) = check_rows(hidden, config.hidden_size, "hidden")?;
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
        let local = decoder.rope_local.as_ref();
        Ok(Self {
            hidden: with_f32(&hidden, |values| Ok(values.to_vec()))?,
            rows,
            angles: decoder.rope.angles(start, rows, capacity),
            local_angles: local.map(|rope| rope.angles(start, rows, capacity)),
            buffers: cache.take_buffers(),
            next: 0,
            decoder,
            cache,
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
                self.decoder.norm()?.apply_in_place(&mut self.hidden);
                self.next += 1;
                break;
            };
            let (layer, window) = self.decoder.layer(self.next)?;
            let angles = match (&self.local_angles, window) {
                (Some(local), Some(_)) => local,
                _ => &self.angles,
            };
            let step = &mut LayerStep {
                angles,
                cache,
                start,
                capacity,
                rows: self.rows,
                buffers: &mut self.buffers,
            };
            layer.forward(&mut self.hidden, step)?;
            self.next += 1;
        }
        Ok(())
    }

    /// Takes the positions into the cache: `[seq, hidden_size]` hidden states behind the last stage.
    ///
    /// # Errors
    /// [`Error::StageMissing`] if it has not been through all stages.
    pub fn finish(self) -> Result<Tensor, Error> {
        if self.next < self.decoder.stages() {
            return Err(Error::StageMissing { stage: self.next });
        }
        self.cache.keep_buffers(self.buffers, self.rows);
        self.cache.advance(self.rows);
        let shape = (self.rows, self.decoder.config().hidden_size);
        Ok(Tensor::from_vec(self.hidden, shape, &Device::Cpu)?)
    }
}
