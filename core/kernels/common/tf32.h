#pragma once

namespace cohort {

// Whether matrix products and convolutions of float32 on GPUs may read their operands in TF32, with
// 10 bits of fraction instead of 23: several times quicker on tensor cores. Not allowed by default.
// Functions that were compiled before keep to what was allowed then. Thread-safe.
void allow_tf32(bool allowed);
bool is_tf32_allowed();

}  // namespace cohort
