//! A memory-mapped BPE tokenizer: vocabulary and merges as flat tables, no JSON at start.
