//! Tiny GGUF files, written by the test itself.

use super::huggingface_source::alphabet;

/// A metadata value.
#[derive(Clone, Debug)]
pub(crate) enum Meta {
    U32(u32),
    F32(f32),
    Bool(bool),
    Text(&'static str),
    Texts(Vec<String>),
    I32s(Vec<i32>),
}

/// A file under construction.
#[derive(Clone, Debug)]
pub(crate) struct Gguf {
    pub(crate) metadata: Vec<(String, Meta)>,
    /// Name, GGML type, shape outermost first, bytes.
    pub(crate) tensors: Vec<(String, u32, Vec<u64>, Vec<u8>)>,
}

pub(crate) const F32: u32 = 0;
pub(crate) const Q8_0: u32 = 8;

impl Gguf {
    /// A llama of one layer, hidden size 64, with a Q8_0 matrix of 260 rows.
    pub(crate) fn llama() -> Self {
        let mut gguf = Self {
            metadata: Vec::new(),
            tensors: Vec::new(),
        };
        gguf.set("general.architecture", Meta::Text("llama"));
        for (key, value) in [
            ("block_count", 1),
            ("context_length", 128),
            ("embedding_length", 64),
            ("feed_forward_length", 96),
            ("attention.head_count", 2),
            ("attention.head_count_kv", 1),
            ("rope.dimension_count", 32),
        ] {
            gguf.set(&format!("llama.{key}"), Meta::U32(value));
        }
        gguf.set("llama.attention.layer_norm_rms_epsilon", Meta::F32(1e-5));
        gguf.set("llama.rope.freq_base", Meta::F32(10_000.0));
        gguf.tokenizer();
        gguf.matrix("token_embd.weight", 260, 64);
        gguf.vector("output_norm.weight", 64);
        gguf.vector("blk.0.attn_norm.weight", 64);
        gguf.matrix("blk.0.attn_q.weight", 64, 64);
        gguf.matrix("blk.0.attn_k.weight", 32, 64);
        gguf.matrix("blk.0.attn_v.weight", 32, 64);
        gguf.matrix("blk.0.attn_output.weight", 64, 64);
        gguf.vector("blk.0.ffn_norm.weight", 64);
        gguf.matrix("blk.0.ffn_gate.weight", 96, 64);
        gguf.matrix("blk.0.ffn_up.weight", 96, 64);
        gguf.matrix("blk.0.ffn_down.weight", 64, 96);
        gguf
    }

    fn tokenizer(&mut self) {
        let mut tokens: Vec<String> = alphabet().into_iter().map(String::from).collect();
        let mut types = vec![1; tokens.len()];
        tokens.extend(["<|im_end|>".to_owned(), "<|endoftext|>".to_owned()]);
        types.extend([3, 3]);
        self.set("tokenizer.ggml.model", Meta::Text("gpt2"));
        self.set("tokenizer.ggml.pre", Meta::Text("gpt-2"));
        self.set("tokenizer.ggml.tokens", Meta::Texts(tokens));
        self.set("tokenizer.ggml.token_type", Meta::I32s(types));
        self.set("tokenizer.ggml.merges", Meta::Texts(Vec::new()));
        self.set("tokenizer.ggml.eos_token_id", Meta::U32(256));
        self.set("tokenizer.ggml.bos_token_id", Meta::U32(257));
        self.set("tokenizer.ggml.add_bos_token", Meta::Bool(false));
        self.set("tokenizer.chat_template", Meta::Text("{{ bos_token }}"));
    }

    /// Sets a key, replacing what it was.
    pub(crate) fn set(&mut self, key: &str, value: Meta) {
        self.metadata.retain(|(known, _)| known != key);
        self.metadata.push((key.to_owned(), value));
    }

    /// Takes a tensor out.
    pub(crate) fn without(&mut self, name: &str) {
        self.tensors.retain(|(known, ..)| known != name);
    }

    /// Adds a Q8_0 matrix.
    pub(crate) fn matrix(&mut self, name: &str, rows: u64, cols: u64) {
        let blocks = rows * cols / 32;
        let bytes = (0..blocks).flat_map(|block| {
            let scale = half::f16::from_f32(0.01 + (block % 7) as f32 * 0.001).to_le_bytes();
            let levels = (0..32_u64).map(move |index| ((block * 37 + index * 11) % 255) as u8);
            scale.into_iter().chain(levels)
        });
        self.tensors
            .push((name.to_owned(), Q8_0, vec![rows, cols], bytes.collect()));
    }

    /// Adds an f32 vector.
    pub(crate) fn vector(&mut self, name: &str, len: u64) {
        let bytes = (0..len)
            .flat_map(|index| (1.0 + index as f32 * 0.125).to_le_bytes())
            .collect();
        self.tensors.push((name.to_owned(), F32, vec![len], bytes));
    }

    /// The file.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(3_u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            text(&mut out, key);
            meta(&mut out, value);
        }
        let mut data = Vec::new();
        for (name, kind, shape, bytes) in &self.tensors {
            text(&mut out, name);
            out.extend((shape.len() as u32).to_le_bytes());
            for dim in shape.iter().rev() {
                out.extend(dim.to_le_bytes());
            }
            out.extend(kind.to_le_bytes());
            out.extend((data.len() as u64).to_le_bytes());
            data.extend_from_slice(bytes);
            pad(&mut data);
        }
        pad(&mut out);
        out.extend(data);
        out
    }

    /// The file on disk.
    pub(crate) fn write(&self, dir: &std::path::Path) -> std::path::PathBuf {
        let path = dir.join("tiny.gguf");
        std::fs::write(&path, self.bytes()).unwrap();
        path
    }
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(32), 0);
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn meta(out: &mut Vec<u8>, value: &Meta) {
    let code = |out: &mut Vec<u8>, code: u32| out.extend(code.to_le_bytes());
    match value {
        Meta::U32(number) => {
            code(out, 4);
            out.extend(number.to_le_bytes());
        }
        Meta::F32(number) => {
            code(out, 6);
            out.extend(number.to_le_bytes());
        }
        Meta::Bool(set) => {
            code(out, 7);
            out.push(u8::from(*set));
        }
        Meta::Text(content) => {
            code(out, 8);
            text(out, content);
        }
        Meta::Texts(all) => {
            code(out, 9);
            code(out, 8);
            out.extend((all.len() as u64).to_le_bytes());
            all.iter().for_each(|content| text(out, content));
        }
        Meta::I32s(all) => {
            code(out, 9);
            code(out, 5);
            out.extend((all.len() as u64).to_le_bytes());
            all.iter()
                .for_each(|number| out.extend(number.to_le_bytes()));
        }
    }
}
