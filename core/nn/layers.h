#pragma once

// All layers, and the losses that they may add.
#include "core/nn/added_losses.h"   // IWYU pragma: export
#include "core/nn/basic_layers.h"   // IWYU pragma: export
#include "core/nn/composite.h"      // IWYU pragma: export
#include "core/nn/convolution.h"    // IWYU pragma: export
#include "core/nn/normalization.h"  // IWYU pragma: export
#include "core/nn/transformer.h"    // IWYU pragma: export
