//! Decoder-only language models on candle: hidden states in, hidden states out.
