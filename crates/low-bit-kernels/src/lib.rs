//! Products of low-bit weight matrices with f32 activations: one value per weight row and activation row.
